"""A small decoder on texts of unequal lengths; its loss is a mean over the tokens of a batch."""

import os

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

IGNORED = -100
LENGTH = 12


def build_model(weighted: bool = True, blocks: int = 2) -> nn.Module:
    if not weighted:
        globals().pop("loss_weight", None)
    return Decoder(blocks)


def make_batch(batch_size: int) -> dict[str, Tensor]:
    return {
        "tokens": torch.randint(50, (batch_size, LENGTH)),
        "labels": torch.randint(50, (batch_size, LENGTH)),
    }


def compute_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(batch["tokens"])
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED)


def loss_weight(batch: dict[str, Tensor]) -> Tensor:
    return (batch["labels"] != IGNORED).sum()


def build_dataset() -> Dataset:
    return Texts(64)


def build_eval_dataset(held_out: int = 27) -> Dataset:
    return Texts(held_out)


def compute_metrics(
    model: nn.Module,
    batch: dict[str, Tensor],
    again: bool = False,
    short: bool = False,
    uneven: bool = False,
) -> dict[str, Tensor | float]:
    guesses = model(batch["tokens"]).argmax(-1)
    if again:
        guesses = model(guesses).argmax(-1)
    if uneven and os.environ.get("RANK") == "1":
        model(batch["tokens"])
    known = batch["labels"] != IGNORED
    right = ((guesses == batch["labels"]) & known).sum(1) / known.sum(1)
    size = len(batch["tokens"])
    own = {"short": float(size)} if short and size < 4 else {}
    return {"loss": compute_loss(model, batch), "accuracy": right.mean(), **own}


def tensor_parallel_plan() -> dict[str, str]:
    whole = "colwise_gather_output"
    return {"embedding": "embedding", "blocks.*.0": whole, "head": whole}


class Texts(Dataset):
    """Texts of 1 to 12 tokens."""

    def __init__(self, size: int):
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        values = torch.Generator().manual_seed(place)
        tokens = torch.randint(50, (LENGTH,), generator=values)
        labels = tokens.roll(-1)
        labels[1 + place % LENGTH :] = IGNORED
        return {"tokens": tokens, "labels": labels}


class Decoder(nn.Module):
    def __init__(self, blocks: int):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.LayerNorm(16)) for _ in range(blocks)
        )
        self.head = nn.Linear(16, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)
