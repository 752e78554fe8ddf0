"""A model with a layer that its loss leaves out, and a tied weight."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LeavesOut(nn.Module):
    """Two layers that are used, one weight twice, and one layer that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.unused = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Return scores of the next token."""
        return self.head(self.norm(self.embed(ids)))


def build_model() -> nn.Module:
    """Return the model."""
    return LeavesOut()


def make_batch(batch_size: int) -> Tensor:
    """Return tokens, the same for every call of a generator's state."""
    return torch.randint(0, 16, (batch_size, 6))


def compute_loss(model: nn.Module, batch: Tensor) -> Tensor:
    """Return the loss of the next tokens."""
    scores = model(batch[:, :-1])
    return nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())


def build_optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return AdamW, which gives no state to what gets no gradient."""
    return torch.optim.AdamW(parameters, lr=1e-2)
