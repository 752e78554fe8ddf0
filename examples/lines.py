"""A decoder of characters that learns the lines of a text: every function that a run may use.

27,456 parameters. The text is this file unless `--param text=book.txt` names another; every eighth
line is held out for the evaluation. `--param matrices=muon` trains the matrices of its blocks by
Muon and all else by AdamW, each with a schedule of its own.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

CHARACTERS = 128
LENGTH = 64
IGNORED = -100
TOKENS_PER_SAMPLE = LENGTH


def build_model(layers: int = 2, hidden: int = 32) -> nn.Module:
    model = Decoder(layers, hidden)
    for parameter in model.blocks.parameters():
        parameter.is_matrix = parameter.ndim == 2  # pyright: ignore[reportAttributeAccessIssue]
    return model


def make_batch(batch_size: int = 16) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(CHARACTERS, (batch_size, LENGTH + 1))
    return tokens[:, :-1], tokens[:, 1:]


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def loss_weight(batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the characters that the loss is a mean of: lines are of unequal lengths."""
    return (batch[1] != IGNORED).sum()


def build_optimizer(parameters, matrices: str = "adamw"):
    """Return one optimizer, or a list of several, each of its own parameters."""
    if matrices == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-2)
    of_blocks = [one for one in parameters if getattr(one, "is_matrix", False)]
    others = [one for one in parameters if not getattr(one, "is_matrix", False)]
    return [torch.optim.Muon(of_blocks, lr=2e-2), torch.optim.AdamW(others, lr=1e-2)]


def build_scheduler(optimizer, steps: int, matrices: str = "adamw"):
    """Return one schedule, or a list of several; several optimizers come one after another."""
    optimizers = [optimizer] if matrices == "adamw" else optimizer
    return [
        torch.optim.lr_scheduler.OneCycleLR(one, one.param_groups[0]["lr"], total_steps=steps + 1)
        for one in optimizers
    ]


def build_dataset(text: str = __file__) -> Dataset:
    return Lines(text, held_out=False)


def build_eval_dataset(text: str = __file__) -> Dataset:
    return Lines(text, held_out=True)


def compute_metrics(model: nn.Module, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    tokens, targets = batch
    logits = model(tokens)
    known = targets != IGNORED
    right = ((logits.argmax(-1) == targets) & known).sum(1) / known.sum(1)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    return {"loss": loss, "accuracy": right.mean()}


def sample(model: nn.Module, folder: Path | None) -> None:
    """Write how a line goes on that begins with "def", character by character."""
    device = next(model.parameters()).device
    codes = [2, *map(ord, "def ")]
    for _ in range(LENGTH - len(codes)):
        logits = model(torch.tensor([codes], device=device))[0, -1]
        codes.append(int(torch.multinomial(logits.softmax(-1), 1)))
    if folder is not None:
        (folder / "line.txt").write_text("".join(map(chr, codes[1:])), encoding="utf-8")


def extra_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> "Average":
    """Return what is kept in checkpoints beside weights, optimizer and schedule."""
    return Average(model)


class Average:
    """An exponential moving average of the weights, sharded as they are."""

    def __init__(self, model: nn.Module):
        self.model = model
        self.mean = {name: one.detach().clone() for name, one in model.named_parameters()}

    def after_step(self, step: int) -> None:
        for name, one in self.model.named_parameters():
            self.mean[name].lerp_(one.detach(), 0.01)

    def state_dict(self) -> dict:
        return {"mean": self.mean}

    def load_state_dict(self, state: dict) -> None:
        for name, value in state["mean"].items():
            self.mean[name].copy_(value)


class Lines(Dataset):
    """The lines of a text, each as characters and those that follow them."""

    def __init__(self, text: str, *, held_out: bool):
        lines = [line for line in Path(text).read_text(encoding="utf-8").splitlines() if line]
        self.lines = [one for at, one in enumerate(lines) if (at % 8 == 0) == held_out]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        codes = [2, *(ord(one) % CHARACTERS for one in self.lines[place]), 3][: LENGTH + 1]
        tokens = torch.zeros(LENGTH + 1, dtype=torch.int64)
        tokens[: len(codes)] = torch.tensor(codes)
        targets = tokens[1:].clone()
        targets[len(codes) - 1 :] = IGNORED
        return tokens[:-1], targets


class Decoder(nn.Module):
    def __init__(self, layers: int, hidden: int):
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, hidden)
        self.places = nn.Embedding(LENGTH, hidden)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                hidden, 4, 2 * hidden, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(hidden, CHARACTERS)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        hidden = self.embedding(tokens) + self.places.weight[:length]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        for block in self.blocks:
            hidden = block(hidden, src_mask=mask, is_causal=True)
        return self.head(hidden)
