"""Model files as users write them: how one is loaded, and one real step of it."""

from pathlib import Path
from textwrap import dedent
from typing import Any

from gpuplan.profiles.user_model.contract import Workload, load_workload
from gpuplan.profiles.user_model.spec import parse_model_spec

PLAIN = """
    import torch
    from torch import nn

    TOKENS_PER_SAMPLE = 7

    def build_model(width=8, classes=4):
        return nn.Linear(width, classes)

    def make_batch(batch_size=32, width=8, classes=4):
        return torch.randn(batch_size, width), torch.randint(classes, (batch_size,))

    def compute_loss(model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def build_optimizer(parameters, rate=0.1):
        return torch.optim.SGD(parameters, lr=rate)
"""


def load(folder: Path, text: str, *, name: str = "user_model.py", **options: Any) -> Workload:
    file = folder / name
    file.write_text(dedent(text))
    class_name = options.pop("class_name", None)
    typed = f"{file}:{class_name}" if class_name else str(file)
    return load_workload(parse_model_spec(typed, **options))


def batch_of(workload: Workload, size: int) -> tuple[Any, ...]:
    batch = workload.make_batch(size)
    assert isinstance(batch, tuple)
    return batch


def one_step(workload: Workload) -> float:
    """Return the loss of one real step, to show that the parts fit together."""
    model = workload.build_model()
    optimizer = workload.build_optimizer(model.parameters())
    loss = workload.compute_loss(model, workload.make_batch(3))
    loss.backward()
    assert any(parameter.grad is not None for parameter in model.parameters())
    optimizer.step()
    return float(loss.detach())
