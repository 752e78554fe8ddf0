"""Two towers whose loss compares each sample with the rest of its micro-batch, in several ways."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

WIDTH = 8
LOSSES = ("products", "views", "distances", "differences", "alone", "variance")


class Towers(nn.Module):
    def __init__(self, loss: str):
        super().__init__()
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.loss = loss


def build_model(loss: str = "products") -> Towers:
    return Towers(loss)


def make_batch(batch_size: int = 4) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, WIDTH), torch.randn(batch_size, WIDTH)


def build_dataset() -> Dataset:
    values = torch.Generator().manual_seed(1)
    return TensorDataset(*(torch.randn(64, WIDTH, generator=values) for _ in range(2)))


def compute_loss(model: Towers, batch: tuple[Tensor, Tensor]) -> Tensor:
    left, right = model.left(batch[0]), model.right(batch[1])
    size = len(left)
    if model.loss == "alone":
        return (left - right).square().mean()
    if model.loss == "variance":
        return (left.T @ right / size - torch.eye(WIDTH)).square().sum()
    if model.loss == "views":
        both = torch.cat([left, right])
        masked = both @ both.T - 1e9 * torch.eye(2 * size)
        return F.cross_entropy(masked, torch.arange(2 * size).roll(size))
    if model.loss == "distances":
        return F.cross_entropy(-torch.cdist(left, right), torch.arange(size))
    if model.loss == "differences":
        return F.cross_entropy(-(left[:, None] - right).square().sum(-1), torch.arange(size))
    return F.cross_entropy(left @ right.T, torch.arange(size))
