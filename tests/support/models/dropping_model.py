"""Blocks with dropout on split and on whole features, which note the masks that they draw."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.functional import dropout

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


def _closure(drop: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: drop(x, DROPPED, True)


class Function(nn.Module):
    """Drops by a function that it finds as people's code does, and notes the masks that it draws.

    named: in its own module, by `from torch.nn.functional import dropout`
    kept: as an attribute of itself
    part: as one that knows how much to drop
    of class: as an attribute of its class
    torch: by torch's other name for it
    closure: where no name is of it
    """

    of_class = staticmethod(F.dropout)

    def __init__(self, name: str, found_as: str):
        super().__init__()
        self.name = name
        self.found_as = found_as
        self.kept: Callable[..., Tensor] = F.dropout
        self.part = partial(F.dropout, p=DROPPED)
        self.in_closure = _closure(F.dropout)

    def drop(self, x: Tensor) -> Tensor:
        if self.found_as == "named":
            return dropout(x, DROPPED)
        if self.found_as == "kept":
            return self.kept(x, DROPPED)
        if self.found_as == "part":
            return self.part(x)
        if self.found_as == "of class":
            return self.of_class(x, DROPPED)
        if self.found_as == "torch":
            return torch.dropout(x, DROPPED, True)
        if self.found_as == "closure":
            return self.in_closure(x)
        return F.dropout(x, DROPPED)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        found = self.drop(x)
        note(self.name, found)
        return found


class Block(nn.Module):
    def __init__(self, number: int, found_as: str):
        super().__init__()
        self.number = number
        self.query_key_value = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        # Split and whole features, of the same shape, in one line of code.
        self.ffn = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.Tanh(),
            Noted(f"split{number}"),
            Function(f"function{number}", found_as),
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
    def __init__(self, found_as: str) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 5)
        self.blocks = nn.ModuleList(Block(number, found_as) for number in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def build_model(found_as: str = "usual") -> nn.Module:
    return Net(found_as)


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
