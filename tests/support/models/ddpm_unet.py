"""A small diffusion U-Net (DDPM) whose time embedding and noise schedule are floats."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

STEPS = 1000


def time_embedding(time: Tensor, width: int) -> Tensor:
    """Return sines and cosines of the time step, in float32 as most implementations make them."""
    frequencies = torch.exp(
        -math.log(10_000) * torch.arange(width // 2, device=time.device) / width
    )
    angles = time[:, None].float() * frequencies[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.shift = nn.Linear(width, width)
        self.convolution = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor, embedded: Tensor) -> Tensor:
        shifted = F.silu(self.norm(x)) + self.shift(embedded)[:, :, None, None]
        return x + self.convolution(shifted)


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(Block(width) for _ in range(2))
        self.up = nn.ModuleList(Block(width) for _ in range(2))
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        embedded = self.time(time_embedding(time, self.width))
        x = self.first(x)
        skips = []
        for block in self.down:
            x = block(x, embedded)
            skips.append(x)
            x = F.avg_pool2d(x, 2)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2) + skips.pop()
            x = block(x, embedded)
        return self.last(x)


def build_model(width: int = 32) -> nn.Module:
    return UNet(width)


def make_batch(batch_size: int = 16, size: int = 32) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 3, size, size), torch.randint(STEPS, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, time = batch
    kept = torch.linspace(0.9999, 0.005, STEPS, device=images.device)[time][:, None, None, None]
    noise = torch.randn_like(images)
    noised = kept.sqrt() * images + (1 - kept).sqrt() * noise
    return F.mse_loss(model(noised, time), noise)
