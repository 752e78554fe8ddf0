"""A U-Net-like model whose repeated levels are lists of modules, which nobody calls."""

from grouped_model import Block, build_dataset, compute_loss, make_batch  # noqa: F401
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 16


class Levels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 5)
        levels = ([Block(), nn.Linear(WIDTH, WIDTH), nn.Identity()] for _ in range(3))
        self.levels = nn.ModuleList(nn.ModuleList(level) for level in levels)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for level in self.levels:
            block, linear, rest = level  # pyright: ignore[reportGeneralTypeIssues]
            x = rest(functional.gelu(linear(block(x))))
        return self.last(x)


def build_model() -> nn.Module:
    return Levels()
