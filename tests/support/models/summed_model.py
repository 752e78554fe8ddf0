"""A small model whose loss is a mean over its samples, a sum over them, or something of both."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

WIDTH, CLASSES = 8, 4
SUMS = ("sum", "sum of squares", "sum and penalty", "loop")
NO_SUMS = (
    "mean", "masked", "over length", "noise", "batch norm", "pairs", "contrast", "features",
    "weighted", "fails when evaluated",
)  # fmt: skip


class Classifier(nn.Module):
    def __init__(self, loss: str):
        super().__init__()
        self.layer, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)
        self.dropout, self.head = nn.Dropout(0.5), nn.Linear(WIDTH, CLASSES)
        self.loss = loss

    def forward(self, x: Tensor) -> Tensor:
        if self.loss == "fails when evaluated" and not self.training:
            raise ValueError("no loss is made here")
        hidden = self.layer(x)
        if self.loss == "batch norm":
            hidden = self.norm(hidden)
        return self.head(self.dropout(hidden.relu()))


def build_model(loss: str = "mean") -> Classifier:
    return Classifier(loss)


def make_batch(batch_size: int = 4) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, WIDTH), torch.randint(CLASSES, (batch_size,))


def build_dataset() -> Dataset:
    values = torch.Generator().manual_seed(1)
    x = torch.randn(64, WIDTH, generator=values)
    return TensorDataset(x, torch.randint(CLASSES, (64,), generator=values))


def compute_loss(model: Classifier, batch: tuple[Tensor, Tensor]) -> Tensor:
    x, labels = batch
    if model.loss == "noise":
        x = x + torch.randn_like(x)
    logits = model(x)
    each = F.cross_entropy(logits, labels, reduction="none")
    one_hot = F.one_hot(labels, CLASSES).float()
    if model.loss == "sum":
        return F.cross_entropy(logits, labels, reduction="sum")
    if model.loss == "sum of squares":
        return (logits - one_hot).square().sum()
    if model.loss == "sum and penalty":
        return each.sum() + 0.01 * model.head.weight.square().sum()
    if model.loss == "loop":
        total = torch.zeros(())
        for row, label in zip(logits, labels, strict=True):
            total = total + F.cross_entropy(row[None], label[None])
        return total
    if model.loss in ("masked", "noise"):
        kept = (x[:, 0] > -9).float()
        return (each * kept).sum() / kept.sum()
    if model.loss == "over length":
        return each.sum() / len(x)
    if model.loss == "pairs":
        return torch.cdist(logits, logits).sum()
    if model.loss == "contrast":
        other = F.normalize(model(x.flip(1)), dim=-1)
        return -F.log_softmax(F.normalize(logits, dim=-1) @ other.T, -1).diagonal().sum() / len(x)
    if model.loss == "features":
        return (logits - one_hot).square().sum(-1).mean()
    if model.loss == "weighted":
        return (each * each.detach().softmax(0)).sum()
    return each.mean()
