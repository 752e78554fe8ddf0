"""DiT-XL/2 of fast-DiT on 256 x 256 pixels, after the frozen VAE encoder.

The encoder makes the 32 x 32 latents in each step.
"""

import math

import torch
import torch.nn.functional as F
from dit import DiT, build_optimizer
from torch import Tensor, nn

__all__ = ["build_model", "build_optimizer", "compute_loss", "make_batch"]


def build_model(
    layers: int = 28, hidden: int = 1152, heads: int = 16, patch: int = 2, latent: int = 32
) -> nn.Module:
    return Whole(DiT(layers, hidden, heads, patch, latent))


def make_batch(batch_size: int, image: int = 256) -> tuple[Tensor, Tensor, Tensor]:
    images = torch.randn(batch_size, 3, image, image)
    return images, torch.randint(1000, (batch_size,)), torch.randint(1000, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    return model(*batch)


class Whole(nn.Module):
    def __init__(self, dit: DiT):
        super().__init__()
        self.dit = dit
        self.vae = Encoder().requires_grad_(False)

    def forward(self, images: Tensor, steps: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            mean, spread = self.vae(images).chunk(2, 1)
            x = 0.18215 * (mean + (0.5 * spread.clamp(-30, 20)).exp() * torch.randn_like(mean))
        noise = torch.randn_like(x)
        angle = (steps / 1000 * (math.pi / 2)).view(-1, 1, 1, 1)
        made = self.dit(angle.cos() * x + angle.sin() * noise, steps, labels).float()
        wanted, variance = made.chunk(2, 1)
        return F.mse_loss(wanted, noise) + 1e-3 * variance.square().mean()


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, time: int | None, eps: float):
        super().__init__()
        self.norm1 = nn.GroupNorm(32, inputs, eps=eps)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs) if time else None
        self.norm2 = nn.GroupNorm(32, outputs, eps=eps)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        inner = self.conv1(F.silu(self.norm1(x)))
        if self.time is not None:
            assert time is not None
            inner = inner + self.time(F.silu(time))[:, :, None, None]
        inner = self.conv2(F.silu(self.norm2(inner)))
        return inner + (x if self.shortcut is None else self.shortcut(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 128, 3, padding=1)]
        before = 128
        for level, width in enumerate((128, 256, 512, 512)):
            for _ in range(2):
                layers.append(Residual(before, width, None, 1e-6))
                before = width
            if level < 3:
                layers += [nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(width, width, 3, 2)]
        self.layers = nn.Sequential(*layers)
        self.middle1 = Residual(512, 512, None, 1e-6)
        self.norm0 = nn.GroupNorm(32, 512, eps=1e-6)
        self.qkv = nn.Linear(512, 3 * 512)
        self.out = nn.Linear(512, 512)
        self.middle2 = Residual(512, 512, None, 1e-6)
        self.norm = nn.GroupNorm(32, 512, eps=1e-6)
        self.leave = nn.Conv2d(512, 8, 3, padding=1)
        self.moments = nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.middle1(self.layers(x))
        height, breadth = x.shape[2:]
        q, k, v = self.qkv(self.norm0(x).flatten(2).transpose(1, 2)).chunk(3, -1)
        mixed = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        x = x + self.out(mixed).transpose(1, 2).unflatten(2, (height, breadth))
        return self.moments(self.leave(F.silu(self.norm(self.middle2(x)))))
