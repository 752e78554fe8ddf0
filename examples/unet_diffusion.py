"""Denoising U-Net of a diffusion model, 35,746,307 parameters by default (CIFAR-10 images).

Source: Ho et al. 2020, "Denoising Diffusion Probabilistic Models" (arXiv:2006.11239), appendix B:
35.7 million parameters, two residual blocks a level, attention at 16 x 16.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = 1000


def build_model(
    channels: int = 128,
    multipliers: tuple[int, ...] = (1, 2, 2, 2),
    blocks: int = 2,
    image: int = 32,
    attention_at: int = 16,
    dropout: float = 0.1,
) -> nn.Module:
    return UNet(channels, multipliers, blocks, image, attention_at, dropout)


def make_batch(batch_size: int, image: int = 32) -> tuple[Tensor, Tensor, Tensor]:
    images = torch.randn(batch_size, 3, image, image)
    return images, torch.randn_like(images), torch.randint(STEPS, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Return the mean squared error of the predicted noise (cosine noise schedule)."""
    images, noise, steps = batch
    angle = (steps / STEPS * (math.pi / 2)).view(-1, 1, 1, 1)
    noisy = angle.cos() * images + angle.sin() * noise
    return F.mse_loss(model(noisy, steps), noise)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=2e-4)


class UNet(nn.Module):
    def __init__(
        self,
        channels: int,
        multipliers: tuple[int, ...],
        blocks: int,
        image: int,
        attention_at: int,
        dropout: float,
    ):
        super().__init__()
        time = 4 * channels
        self.channels = channels
        self.time = nn.Sequential(
            nn.Linear(channels, time), nn.SiLU(), nn.Linear(time, time), nn.SiLU()
        )
        self.stem = nn.Conv2d(3, channels, 3, padding=1)

        def layer(inputs: int, outputs: int, size: int) -> Layer:
            return Layer(inputs, outputs, time, dropout, attention=size == attention_at)

        self.down = nn.ModuleList()
        width, size, skips = channels, image, [channels]
        for level, multiplier in enumerate(multipliers):
            for _ in range(blocks):
                self.down.append(layer(width, channels * multiplier, size))
                width = channels * multiplier
                skips.append(width)
            if level < len(multipliers) - 1:
                self.down.append(Downsample(width))
                size //= 2
                skips.append(width)

        self.middle = nn.ModuleList(
            Layer(width, width, time, dropout, attention=first) for first in (True, False)
        )

        self.up = nn.ModuleList()
        for level, multiplier in reversed(list(enumerate(multipliers))):
            for _ in range(blocks + 1):
                self.up.append(layer(width + skips.pop(), channels * multiplier, size))
                width = channels * multiplier
            if level:
                self.up.append(Upsample(width))
                size *= 2

        self.head = nn.Sequential(
            nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1)
        )

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        time = self.time(step_features(steps, self.channels))
        x = self.stem(x)
        skips = [x]
        for module in self.down:
            x = module(x, time)
            skips.append(x)
        for module in self.middle:
            x = module(x, time)
        for module in self.up:
            x = module(x if isinstance(module, Upsample) else torch.cat((x, skips.pop()), 1), time)
        return self.head(x)


class Layer(nn.Module):
    """A residual block told the time step, then self-attention where asked for."""

    def __init__(self, inputs: int, outputs: int, time: int, dropout: float, attention: bool):
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(32, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1)
        )
        self.time = nn.Linear(time, outputs)
        self.second = nn.Sequential(
            nn.GroupNorm(32, outputs),
            nn.SiLU(),
            nn.Dropout(dropout),
            nn.Conv2d(outputs, outputs, 3, padding=1),
        )
        same = inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1)
        self.attention = PixelAttention(outputs) if attention else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        inner = self.first(x) + self.time(time)[:, :, None, None]
        return self.attention(self.second(inner) + self.shortcut(x))


class PixelAttention(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.GroupNorm(32, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(self.norm(x)).flatten(2).transpose(1, 2).unsqueeze(1)
        mixed = F.scaled_dot_product_attention(*qkv.chunk(3, dim=-1))
        return x + self.out(mixed.squeeze(1).transpose(1, 2).reshape(x.shape))


class Downsample(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        return self.conv(x)


class Upsample(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2, mode="nearest"))


def step_features(steps: Tensor, dim: int) -> Tensor:
    """Return sines and cosines of the time steps, (batch, dim)."""
    exponent = torch.arange(dim // 2, device=steps.device) / (dim // 2 - 1)
    angle = steps[:, None] * (10_000.0**-exponent)
    return torch.cat((angle.sin(), angle.cos()), dim=1)
