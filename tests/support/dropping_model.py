"""Blocks with dropout on split and on whole features, which note the masks that they draw."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

WIDTH, HEADS = 32, 4
DROPPED = 0.25


def _append(name: str, found: Tensor) -> None:
    """Append a mask of this rank to a file."""
    folder = os.environ.get("MASKS")
    # Not where a run only looks at the loss, on tensors without data.
    if folder and not isinstance(found, FakeTensor):
        path = Path(folder) / f"{name}-{os.environ.get('RANK', '0')}.pt"
        masks = torch.load(path) if path.exists() else []
        torch.save([*masks, (found == 0).detach().clone()], path)


note: Callable[[str, Tensor], None] = cast(Any, torch.compiler.disable)(_append)
"""`_append`, outside of compiled code; torch's own annotation is of a decorator with arguments."""


class Noted(nn.Dropout):
    """Notes the masks that it draws."""

    def __init__(self, name: str):
        super().__init__(DROPPED)
        self.name = name

    def forward(self, input: Tensor) -> Tensor:
        found = super().forward(input)
        if self.training:
            note(self.name, found)
        return found


class Function(nn.Module):
    """Drops by a function, and notes the masks that it draws."""

    def __init__(self, name: str):
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        found = F.dropout(x, DROPPED, self.training)
        if self.training:
            note(self.name, found)
        return found


class Block(nn.Module):
    def __init__(self, number: int):
        super().__init__()
        self.number = number
        self.query_key_value = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        # Split and whole features, of the same shape, in one line of code.
        self.ffn = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.Tanh(),
            Noted(f"split{number}"),
            Function(f"function{number}"),
            nn.Linear(2 * WIDTH, WIDTH),
            Noted(f"whole{number}"),
        )

    def forward(self, x: Tensor) -> Tensor:
        heads = [
            one(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for one in self.query_key_value
        ]
        if self.training:
            # Of these values, what attention gives is its weights, without those that it dropped.
            query, key, _ = heads
            values = torch.eye(x.shape[1]).expand(*query.shape[:2], -1, -1)
            note(
                f"attention{self.number}",
                F.scaled_dot_product_attention(query, key, values, dropout_p=DROPPED),
            )
        mixed = F.scaled_dot_product_attention(*heads, dropout_p=0.1, is_causal=True)
        x = x + F.dropout(self.out(mixed.transpose(1, 2).flatten(2)), 0.1, self.training)
        return x + self.ffn(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 5)
        self.blocks = nn.ModuleList(Block(number) for number in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def build_model() -> nn.Module:
    return Net()


def make_batch(batch_size: int = 4) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 16, 8), torch.randint(5, (batch_size, 16))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


def tensor_parallel_plan() -> dict[str, str]:
    return {
        "blocks.*.query_key_value.*": "colwise",
        "blocks.*.out": "rowwise",
        "blocks.*.ffn.0": "colwise",
        "blocks.*.ffn.4": "rowwise",
    }
