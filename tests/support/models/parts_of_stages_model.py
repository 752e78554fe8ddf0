"""A model whose matrices are outside of its blocks: a stage in the middle has none."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LRScheduler
from torch.utils.data import Dataset, TensorDataset

WIDTH, WORDS, LENGTH = 16, 31, 6


def build_model(frozen: str = "") -> nn.Module:
    """Return the model, without training what the first stages of it hold, or the last."""
    model = Gated()
    parts = {
        "": [],
        "first": [model.embedding, *model.blocks[:2]],
        "last": [*model.blocks[2:], model.head],
    }
    for part in parts[frozen]:
        part.requires_grad_(False)
    return model


def make_batch(batch_size: int = 4) -> tuple[Tensor, ...]:
    return tuple(torch.randint(WORDS, (batch_size, LENGTH)) for _ in range(2))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, labels = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())


def build_optimizer(
    parameters: list[nn.Parameter], of_matrices: str = "muon"
) -> torch.optim.Optimizer | list[torch.optim.Optimizer]:
    matrices = [one for one in parameters if one.ndim > 1]
    others = [one for one in parameters if one.ndim < 2]
    makers = {
        "muon": lambda: torch.optim.Muon(matrices, lr=0.02),
        "sgd": lambda: torch.optim.SGD(matrices, lr=0.1, momentum=0.9),
        "adamw": lambda: torch.optim.AdamW([{"params": matrices}], lr=0.02),
    }
    if of_matrices == "one":
        return torch.optim.AdamW(parameters, lr=0.02)
    if of_matrices == "groups":
        return torch.optim.AdamW([{"params": matrices, "lr": 0.03}, {"params": others}], lr=0.02)
    return [makers[of_matrices](), torch.optim.AdamW(others, lr=0.02)]


def build_scheduler(optimizer, steps: int) -> list[LRScheduler]:
    if isinstance(optimizer, torch.optim.AdamW):
        return [CosineAnnealingLR(optimizer, steps)]
    of_matrices, of_others = optimizer
    return [CosineAnnealingLR(of_matrices, steps), ConstantLR(of_others, 0.5, 3)]


def build_dataset() -> Dataset:
    values = torch.Generator().manual_seed(1)
    tokens = torch.randint(WORDS, (64, LENGTH), generator=values)
    return TensorDataset(tokens, tokens.roll(-1, 1))


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + torch.tanh(self.norm(hidden))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Gate() for _ in range(4))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)
