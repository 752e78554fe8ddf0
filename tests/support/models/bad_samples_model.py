"""A model whose data set holds samples that make the loss no number; which were read is noted."""

import os

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset


def build_model() -> nn.Module:
    return nn.Linear(1, 1)


def make_batch(batch_size: int) -> tuple[Tensor]:
    return (torch.randn(batch_size, 1),)


def compute_loss(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
    return (model(batch[0]) - 1).square().mean()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)


def build_dataset(size: int = 64, bad: tuple = (), always: bool = False) -> Dataset:
    return Numbers(size, bad, always)


class Numbers(Dataset):
    """The numbers from 0 on, some of them bad; bad[n] is the n-th sample that is read."""

    def __init__(self, size: int, bad: tuple, always: bool):
        self.size = size
        self.bad = set(bad)
        self.always = always

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, place: int) -> Tensor:
        with open(os.environ["SAMPLES_READ"], "a", encoding="utf-8") as file:
            file.write(f"{place}\n")
        if self.always or place in self.bad:
            return torch.tensor([float("nan")])
        return torch.tensor([place / self.size])
