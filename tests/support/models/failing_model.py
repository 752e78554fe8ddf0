"""A model whose training fails, or is slow, at a step that an environment variable names."""

import os
import time

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

FAILING = os.environ.get("FAILING", "")
AT = int(os.environ.get("FAILING_AT", "7"))
_calls = 0


def build_model() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    if FAILING == "unused":
        model[1].unused = nn.Linear(3, 3)
    return model


def make_batch(batch_size: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch_size, 8),)


def compute_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    global _calls
    loss = model(*batch).square().mean()
    if isinstance(loss, FakeTensor):
        return loss  # Looked at before the first step, on tensors without data.
    _calls += 1
    if _calls < AT:
        return loss
    if FAILING == "nan":
        return loss * float("nan")
    if FAILING == "gradient" and _calls == AT and os.environ.get("RANK", "0") == "0":
        # Zero, and its derivative no number.
        return loss + (model[0].weight.sum() * 0).abs().sqrt()  # pyright: ignore
    if FAILING == "memory":
        return loss + torch.empty(2**60).sum()
    if FAILING == "error" and os.environ.get("RANK") == "1":
        raise ValueError("the batch is empty")
    if FAILING == "hang" and os.environ.get("RANK") == "1":
        while not os.path.exists(os.environ["HANG_UNTIL"]):
            time.sleep(0.05)
    if FAILING == "die" and os.environ.get("RANK") == "1":
        os._exit(3)
    if FAILING == "slow" and os.environ.get("RANK") == "1":
        time.sleep(0.03)
    return loss


class Samples(torch.utils.data.Dataset):
    """Samples of which the fifth is a file that is not there."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, place: int) -> tuple[Tensor, ...]:
        if place == 5:
            with open("samples/5.bin", "rb") as stream:
                stream.read()
        return (torch.ones(8),)


if FAILING == "file":

    def build_dataset() -> Samples:
        return Samples()


def on_metrics(metrics: dict) -> None:
    if os.environ.get("METRICS_FILE"):
        with open(os.environ["METRICS_FILE"], "a") as stream:
            stream.write(f"{metrics['step']} {metrics['loss']:.6g}\n")
