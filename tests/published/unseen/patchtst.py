"""PatchTST in self-supervised pre-training: masked patches of each variable are restored.

Program: yuqinie98/PatchTST, PatchTST_self_supervised/patchtst_pretrain.py: 512 steps in 42 patches
of 12, three layers of 128 with 16 heads written out, batch norm, dropout of 0.2. A sample has
`variables` series, and each of them is a row.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 3,
    hidden: int = 128,
    heads: int = 16,
    ffn: int = 512,
    patches: int = 42,
    variables: int = 321,
) -> nn.Module:
    return PatchTST(layers, hidden, heads, ffn, patches)


def make_batch(
    batch_size: int, patches: int = 42, variables: int = 321
) -> tuple[Tensor, Tensor, Tensor]:
    shape = (batch_size, patches, variables, 12)
    return torch.randn(shape), torch.randn(shape), (torch.rand(shape[:3]) < 0.4).float()


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    shown, wanted, mask = batch
    loss = ((model(shown) - wanted) ** 2).mean(-1)
    return (loss * mask).sum() / mask.sum()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-4)


class Norm(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, ffn: int, dropout: float = 0.2):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.norm1, self.norm2 = Norm(hidden), Norm(hidden)
        self.up, self.down = nn.Linear(hidden, ffn), nn.Linear(ffn, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = torch.matmul(query, key.transpose(2, 3)) * (x.shape[-1] // self.heads) ** -0.5
        mixed = torch.matmul(F.softmax(scores, dim=-1), value)
        mixed = mixed.transpose(1, 2).contiguous().flatten(2)
        x = self.norm1(x + self.dropout(self.dropout(self.out(mixed))))
        return self.norm2(x + self.dropout(self.down(self.dropout(F.relu(self.up(x))))))


class PatchTST(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, ffn: int, patches: int):
        super().__init__()
        self.enter = nn.Linear(12, hidden)
        self.places = nn.Parameter(torch.zeros(patches, hidden))
        self.blocks = nn.ModuleList(Layer(hidden, heads, ffn) for _ in range(layers))
        self.dropout, self.head = nn.Dropout(0.2), nn.Linear(hidden, 12)

    def forward(self, x: Tensor) -> Tensor:
        count, patches, variables, _ = x.shape
        x = self.enter(x).transpose(1, 2).reshape(count * variables, patches, -1)
        x = self.dropout(x + self.places)
        for block in self.blocks:
            x = block(x)
        x = self.head(self.dropout(x.unflatten(0, (count, variables))))
        return x.permute(0, 2, 1, 3)
