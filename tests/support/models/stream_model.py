"""A model that learns from a stream, which notes every sample that is read for training.

`by` says to whom the stream deals itself, as torch's documentation and Hugging Face's
`split_dataset_by_node` do. One that is read `once` gives nothing after its end.
"""

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset, get_worker_info


def build_model() -> nn.Module:
    return nn.Linear(1, 1)


def make_batch(batch_size: int) -> tuple[Tensor]:
    return (torch.randn(batch_size, 1),)


def build_eval_dataset() -> Dataset:
    return TensorDataset(torch.arange(8.0)[:, None])


def compute_metrics(model: nn.Module, batch: tuple[Tensor]) -> dict[str, Tensor]:
    (inputs,) = batch
    return {"loss": (model(inputs) - inputs).square().mean()}


def compute_loss(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
    (inputs,) = batch
    with open(os.environ["SAMPLES_READ"], "a", encoding="utf-8") as file:
        file.write("".join(f"{number:g}\n" for number in inputs.flatten().tolist()))
    return (model(inputs) - inputs).square().mean()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-5)


def build_dataset(
    size: int = 64, by: str = "", placed: bool = False, once: bool = False
) -> IterableDataset:
    if once:
        return Once(size, by)
    return Placed(size, by) if placed else Numbers(size, by)


class Numbers(IterableDataset):
    """The numbers from 0 on, or every n-th of them."""

    def __init__(self, size: int, by: str):
        self.size = size
        self.by = by.split("+")

    def __iter__(self):
        reader, readers = 0, 1
        if "ranks" in self.by and dist.is_initialized():
            reader, readers = dist.get_rank(), dist.get_world_size()
        info = get_worker_info()
        if "workers" in self.by and info is not None:
            reader, readers = reader * info.num_workers + info.id, readers * info.num_workers
        for number in range(reader, self.size, readers):
            yield torch.tensor([float(number)])


class Once(Numbers):
    """The same, from a source that is used up, such as a pipe."""

    def __init__(self, size: int, by: str):
        super().__init__(size, by)
        self.left = None

    def __iter__(self):
        if self.left is None:
            self.left = super().__iter__()
        return self.left


class Placed(Numbers):
    """The same, and it says how far it is; what it reads is noted in a file."""

    def __init__(self, size: int, by: str):
        super().__init__(size, by)
        self.given = 0

    def __iter__(self):
        for sample in list(super().__iter__())[self.given :]:
            self.given += 1
            with open(os.environ["SAMPLES_READ"] + "-by-stream", "a", encoding="utf-8") as file:
                file.write(f"{sample.item():g}\n")
            yield sample
        self.given = 0

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = state["given"]
