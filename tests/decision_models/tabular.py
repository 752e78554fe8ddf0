"""A tabular model: 800 million rows of embeddings and a small network, as a recommender has."""

import torch
from torch import Tensor, nn

ROWS = 800_000_000
FIELDS = 26
NUMBERS = 13


class Tabular(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(ROWS, 1, mode="sum")
        self.layers = nn.Sequential(
            nn.Linear(NUMBERS + 1, 512),
            nn.ReLU(),
            nn.Linear(512, 256),
            nn.ReLU(),
            nn.Linear(256, 1),
        )

    def forward(self, numbers: Tensor, rows: Tensor) -> Tensor:
        return self.layers(torch.cat([numbers, self.embedding(rows)], dim=1)).squeeze(1)


def build_model() -> nn.Module:
    return Tabular()


def make_batch(batch_size: int = 32) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.randn(batch_size, NUMBERS),
        torch.randint(0, ROWS, (batch_size, FIELDS)),
        torch.rand(batch_size),
    )


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    numbers, rows, clicked = batch
    return nn.functional.binary_cross_entropy_with_logits(model(numbers, rows), clicked)
