"""GPT4TS (One Fits All): six layers of GPT-2 over patches of one series.

All but norms and positions is frozen. Program: DAMO-DI-ML/NeurIPS2023-One-Fits-All,
Long-term_Forecasting: series of 512 steps in patches of 16 with a stride of 8 (64 of them), a batch
counts single variables, attention as transformers' GPT-2 of 2023 writes it out, with its attention
weights returned.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 6, hidden: int = 768, heads: int = 12, steps: int = 512, ahead: int = 96
) -> nn.Module:
    return GPT4TS(layers, hidden, heads, steps, ahead)


def make_batch(batch_size: int, steps: int = 512, ahead: int = 96) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, steps, 1), torch.randn(batch_size, ahead, 1)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.mse_loss(model(batch[0]), batch[1])


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam([one for one in parameters if one.requires_grad], lr=1e-3)


def gelu_new(x: Tensor) -> Tensor:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, dropout: float = 0.1):
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
        scores = torch.where(mask, scores, torch.full_like(scores[:1, :1, :1, :1], -1e9))
        mixed = self.dropout(F.softmax(scores, dim=-1)) @ value
        x = x + self.dropout(self.out(mixed.transpose(1, 2).contiguous().flatten(2)))
        return x + self.dropout(self.down(gelu_new(self.up(self.norm2(x)))))


class GPT4TS(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, steps: int, ahead: int):
        super().__init__()
        self.patches = (steps - 16) // 8 + 2
        self.enter = nn.Linear(16, hidden)
        self.words = nn.Embedding(50257, hidden)
        self.places = nn.Embedding(1024, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm, self.dropout = nn.LayerNorm(hidden), nn.Dropout(0.1)
        self.leave = nn.Linear(hidden * self.patches, ahead)
        for name, weight in self.named_parameters():
            weight.requires_grad_(any(one in name for one in ("norm", "places", "enter", "leave")))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True).detach()
        spread = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5).detach()
        x = ((x - mean) / spread).transpose(1, 2)
        x = F.pad(x, (0, 8), mode="replicate").unfold(-1, 16, 8).flatten(0, 1)
        x = self.dropout(self.enter(x) + self.places.weight[: x.shape[1]])
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        for block in self.blocks:
            x = block(x, mask)
        made = self.leave(self.norm(x).flatten(1)).unsqueeze(-1)
        return made * spread + mean
