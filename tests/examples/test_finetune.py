"""A fine-tune from end to end: a checkpoint on disk, FSDP on two processes, evaluation, export.

What `from_pretrained` then reads has the loss that the run evaluated. `make test-frameworks` does
the same with the commands of docs/running.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from runner_jobs import REPOSITORY, forked_with, plan_of, train

from gpuplan import api
from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.runner.training_options import TrainingOptions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_with_transformers")]

FSDP = {"data": 2, "shard": 2, "zero_stage": 3}
STEPS = 4


@pytest.fixture(scope="module")
def forked_with_transformers() -> Iterator[None]:
    with forked_with("transformers.models.llama.modeling_llama"):
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tiny model and lines to train it on, as the example writes them."""
    from gpuplan.examples import finetune_inputs

    folder = tmp_path_factory.mktemp("base") / "tiny-llama"
    finetune_inputs.main(str(folder))
    return folder


@pytest.fixture(scope="module")
def tuned(
    base: Path, forked_with_transformers: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return the folder of a run that trained it, sharded over two processes."""
    folder = tmp_path_factory.mktemp("tuned")
    losses = train(
        folder,
        REPOSITORY / "examples" / "finetune.py",
        2,
        plan=plan_of(FSDP, micro_batch=16),
        params={"base": str(base)},
        steps=STEPS,
        workers=0,
        training=TrainingOptions(eval_every_steps=STEPS),
    )
    assert losses[-1] < losses[0]
    return folder


def test_what_from_pretrained_reads_has_the_evaluated_loss(base: Path, tuned: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    written = api.export_weights(tuned, "huggingface", checkpoint="best")

    model = AutoModelForCausalLM.from_pretrained(written.folder).eval()
    assert _loss(model, base) == pytest.approx(_evaluated(tuned)["loss"], rel=1e-5)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert written.tied == {"lm_head.weight": "model.embed_tokens.weight"}
    assert AutoTokenizer.from_pretrained(written.folder)("1 + 1")["input_ids"]


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param({"tensor": 2}, id="tp2", marks=pytest.mark.repeats),
        pytest.param({"pipeline": 2}, id="pp2"),
    ],
)
def test_every_layout_evaluates_what_one_process_does(
    base: Path, tmp_path: Path, layout: dict[str, int]
) -> None:
    found = []
    for folder, spread in ((tmp_path / "alone", {}), (tmp_path / "spread", layout)):
        train(
            folder,
            REPOSITORY / "examples" / "finetune.py",
            2 if spread else 1,
            plan=plan_of(spread, micro_batch=4, grad_accum=2),
            params={"base": str(base)},
            steps=STEPS,
            workers=0,
            training=TrainingOptions(eval_every_steps=STEPS),
        )
        found.append(_evaluated(folder)["loss"])
    assert found[1] == pytest.approx(found[0], abs=1e-5)


def test_weights_in_several_files_are_the_same(tuned: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    whole = api.export_weights(tuned, folder=tmp_path / "whole")
    parts = api.export_weights(tuned, folder=tmp_path / "parts", max_file_bytes=100_000)

    assert "model.safetensors.index.json" in parts.files and len(parts.files) > len(whole.files)
    models = [AutoModelForCausalLM.from_pretrained(one.folder) for one in (whole, parts)]
    tokens = torch.arange(12)[None]
    with torch.no_grad():
        assert torch.equal(*(model(input_ids=tokens).logits for model in models))


def test_half_the_bytes_are_asked_for(tuned: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    written = api.export_weights(tuned, folder=tmp_path / "half", dtype="bf16")

    assert AutoModelForCausalLM.from_pretrained(written.folder).dtype == torch.bfloat16
    assert written.size_bytes == 2 * written.parameters


def test_an_export_leaves_nothing_half_done(tuned: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").write_text("keep")
    with pytest.raises(UsageError, match="is not empty"):
        api.export_weights(tuned, folder=taken)
    with pytest.raises(UsageError, match=f"it has those of {STEPS}"):
        api.export_weights(tuned, folder=tmp_path / "other", checkpoint="77")
    with pytest.raises(UsageError, match="no whole checkpoint"):
        api.export_weights(tmp_path, folder=tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken"]


def _evaluated(folder: Path) -> dict[str, float]:
    return json.loads((folder / "evaluations.jsonl").read_text().splitlines()[-1])


def _loss(model: torch.nn.Module, base: Path) -> float:
    """Return the loss over the lines of the evaluation, a mean over the tokens of all answers."""
    from gpuplan.examples import finetune

    data = finetune.build_eval_dataset(str(base))
    batch = {key: torch.stack([data[at][key] for at in range(len(data))]) for key in data[0]}
    with torch.no_grad():
        loss = model(**batch).loss.item()
    assert math.isfinite(loss)
    return loss
