"""Toy data, drawn when the data set is made or a sample is read: `--param drawn=` says when."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset, random_split


class Drawn(Dataset[tuple[Tensor, Tensor]]):
    """Samples that are drawn when they are read."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        return torch.randn(3), torch.tensor(1)


def build_model() -> nn.Module:
    return nn.Linear(3, 2)


def make_batch(batch_size: int = 4) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 3), torch.zeros(batch_size, dtype=torch.int64)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def _samples(size: int) -> TensorDataset:
    return TensorDataset(torch.randn(size, 3), torch.zeros(size, dtype=torch.int64))


def build_dataset(drawn: str = "built") -> Dataset[tuple[Tensor, ...]]:
    if drawn == "split":
        return random_split(_samples(48), [32, 16])[0]
    return Drawn() if drawn == "read" else _samples(32)


def build_eval_dataset(drawn: str = "built") -> Dataset[tuple[Tensor, ...]]:
    if drawn == "split":
        return random_split(_samples(48), [32, 16])[1]
    if drawn == "own":
        generator = torch.Generator().manual_seed(1)
        return TensorDataset(
            torch.randn(16, 3, generator=generator), torch.zeros(16, dtype=torch.int64)
        )
    return Drawn() if drawn == "read" else _samples(16)
