"""What a model file gives a Trainer of its own, and gpuplan's runner does not read.

A file of Lightning or Hugging Face often ends in its Trainer, under `if __name__ == "__main__":`,
with arguments that change what is trained. The runner takes its model, loss and data alone: whoever
runs it is told which arguments are left out, and where each is said here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..profiles.user_model.spec import ModelSpec

CLIP, ACCUMULATION, PRECISION, SCHEDULE, OPTIMIZER = (
    "--clip-grad-norm",
    "a plan's accumulation",
    "a plan's precision",
    "--warmup and --schedule",
    "build_optimizer()",
)
LIGHTNING: Mapping[str, str] = {
    "gradient_clip_val": CLIP,
    "gradient_clip_algorithm": CLIP,
    "accumulate_grad_batches": ACCUMULATION,
    "precision": PRECISION,
    "callbacks": "functions of the file (docs/model-file.md)",
}
"""Arguments of `lightning.Trainer` that change the weights, and what is in their place here."""
HUGGING_FACE: Mapping[str, str] = {
    "max_grad_norm": CLIP,
    "gradient_accumulation_steps": ACCUMULATION,
    "per_device_train_batch_size": "--micro-batch",
    "bf16": PRECISION,
    "fp16": PRECISION,
    "learning_rate": OPTIMIZER,
    "weight_decay": OPTIMIZER,
    "adam_beta1": OPTIMIZER,
    "adam_beta2": OPTIMIZER,
    "adam_epsilon": OPTIMIZER,
    "optim": OPTIMIZER,
    "warmup_steps": SCHEDULE,
    "warmup_ratio": SCHEDULE,
    "lr_scheduler_type": SCHEDULE,
    "label_smoothing_factor": "compute_loss()",
    "neftune_noise_alpha": "build_model()",
}
"""The same of `transformers.TrainingArguments`."""
KINDS: Mapping[str, Mapping[str, str]] = {
    "Trainer": LIGHTNING,
    "TrainingArguments": HUGGING_FACE,
    "Seq2SeqTrainingArguments": HUGGING_FACE,
}
LONGEST_VALUE = 24


def trainer_words(spec: ModelSpec) -> str | None:
    """Return what a file gives its own Trainer that is not read, in words; None where nothing is.

    Args:
        spec: the model.
    """
    if spec.kind != "file":
        return None
    given = dict(_arguments(spec.path))
    if not given:
        return None
    instead = list(dict.fromkeys(given.values()))
    return (
        f"{spec.path.name} gives its own Trainer {', '.join(given)}, which this loop does not read:"
        f" see {', '.join(instead)}; --command with your script runs that Trainer"
    )


def _arguments(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each argument that changes what is trained, as it is written, and what is here."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):  # It is refused elsewhere, with its line.
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        known = KINDS.get(_name(node.func), {})
        for one in node.keywords:
            if one.arg is not None and one.arg in known and not _is_nothing(one.value):
                value = ast.unparse(one.value)
                shown = value if len(value) <= LONGEST_VALUE else "…"
                yield f"{one.arg}={shown}", known[one.arg]


def _name(func: ast.expr) -> str:
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def _is_nothing(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value in (None, False, 0)
