"""DiT-XL/2 of facebookresearch/DiT and fast-DiT on 256 x 256 pixels.

It trains on 32 x 32 latents that were encoded beforehand.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 28, hidden: int = 1152, heads: int = 16, patch: int = 2, latent: int = 32
) -> nn.Module:
    return DiT(layers, hidden, heads, patch, latent)


def make_batch(batch_size: int, latent: int = 32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x = torch.randn(batch_size, 4, latent, latent)
    return (
        x,
        torch.randn_like(x),
        torch.randint(1000, (batch_size,)),
        torch.randint(1000, (batch_size,)),
    )


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    x, noise, steps, labels = batch
    angle = (steps / 1000 * (math.pi / 2)).view(-1, 1, 1, 1)
    mean, variance = model(angle.cos() * x + angle.sin() * noise, steps, labels).float().chunk(2, 1)
    return F.mse_loss(mean, noise) + 1e-3 * variance.square().mean()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0)


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(hidden, eps=1e-6, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(hidden, eps=1e-6, elementwise_affine=False)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)
        self.modulation = nn.Linear(hidden, 6 * hidden)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = (
            part[:, None] for part in self.modulation(F.silu(c)).chunk(6, 1)
        )
        inner = self.norm1(x) * (1 + scale1) + shift1
        q, k, v = (
            self.qkv(inner).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        )
        shares = (q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1)).softmax(-1)
        x = x + gate1 * self.out((shares @ v).transpose(1, 2).flatten(2))
        inner = self.norm2(x) * (1 + scale2) + shift2
        return x + gate2 * self.down(F.gelu(self.up(inner), approximate="tanh"))


class DiT(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, patch: int, latent: int):
        super().__init__()
        self.patch = patch
        self.embed = nn.Conv2d(4, hidden, patch, patch)
        self.positions = nn.Parameter(
            torch.zeros(1, (latent // patch) ** 2, hidden), requires_grad=False
        )
        self.steps = nn.Sequential(nn.Linear(256, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.labels = nn.Embedding(1001, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden, eps=1e-6, elementwise_affine=False)
        self.modulation = nn.Linear(hidden, 2 * hidden)
        self.head = nn.Linear(hidden, patch * patch * 8)

    def forward(self, x: Tensor, steps: Tensor, labels: Tensor) -> Tensor:
        x = self.embed(x)
        side = x.shape[-1]
        x = x.flatten(2).transpose(1, 2) + self.positions
        rates = 10_000.0 ** -(torch.arange(128, device=x.device) / 128)
        angles = steps[:, None] * rates
        c = self.steps(torch.cat((angles.cos(), angles.sin()), 1)) + self.labels(labels)
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.modulation(F.silu(c)).chunk(2, 1)
        x = self.head(self.norm(x) * (1 + scale[:, None]) + shift[:, None])
        x = x.unflatten(1, (side, side)).unflatten(-1, (self.patch, self.patch, 8))
        return x.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)
