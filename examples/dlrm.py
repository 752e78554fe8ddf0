"""Deep learning recommendation model, 540,677,217 parameters by default.

Source: Naumov et al. 2019 (arXiv:1906.00091) and its published settings for the Criteo Kaggle
display-advertising data: 13 numbers and 26 categories a sample, embeddings of 16. The gradients of
the embedding tables are dense here.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NUMBERS = 13
# Distinct values of the 26 categories of Criteo Kaggle; 33,762,577 rows in all.
CRITEO_KAGGLE_ROWS = (
    *(1460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5_683, 8_351_593, 3_194),
    *(27, 14_992, 5_461_306, 10, 5_652, 2_173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572),
)


def build_model(
    rows: tuple[int, ...] = CRITEO_KAGGLE_ROWS,
    dim: int = 16,
    bottom: tuple[int, ...] = (512, 256, 64),
    top: tuple[int, ...] = (512, 256),
) -> nn.Module:
    return DLRM(rows, dim, bottom, top)


def make_batch(
    batch_size: int, rows: tuple[int, ...] = CRITEO_KAGGLE_ROWS
) -> tuple[Tensor, Tensor, Tensor]:
    numbers = torch.rand(batch_size, NUMBERS)
    categories = torch.stack([torch.randint(size, (batch_size,)) for size in rows], dim=1)
    clicked = torch.randint(2, (batch_size,)).float()
    return numbers, categories, clicked


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    numbers, categories, clicked = batch
    return F.binary_cross_entropy_with_logits(model(numbers, categories), clicked)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


class DLRM(nn.Module):
    pairs: Tensor

    def __init__(
        self, rows: tuple[int, ...], dim: int, bottom: tuple[int, ...], top: tuple[int, ...]
    ):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(size, dim, mode="sum") for size in rows)
        self.bottom = perceptron(NUMBERS, *bottom, dim)
        vectors = len(rows) + 1
        self.top = perceptron(dim + vectors * (vectors - 1) // 2, *top, 1)
        self.register_buffer("pairs", torch.tril_indices(vectors, vectors, -1), persistent=False)

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        dense = F.relu(self.bottom(numbers))
        looked_up = [
            table(column.unsqueeze(1))
            for table, column in zip(self.tables, categories.unbind(1), strict=True)
        ]
        vectors = torch.stack((dense, *looked_up), dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        row, column = self.pairs
        return self.top(torch.cat((dense, products[:, row, column]), dim=1)).squeeze(1)


def perceptron(*sizes: int) -> nn.Sequential:
    """Return linear layers of these sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
