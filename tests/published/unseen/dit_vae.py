"""DiT-XL/2 of fast-DiT on 256 x 256 pixels, after the frozen VAE encoder.

The encoder makes the 32 x 32 latents in each step.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 28, hidden: int = 1152, heads: int = 16, patch: int = 2, latent: int = 32
) -> nn.Module:
    return Whole(DiT(layers, hidden, heads, patch, latent))


def make_batch(batch_size: int, image: int = 256) -> tuple[Tensor, Tensor, Tensor]:
    images = torch.randn(batch_size, 3, image, image)
    return images, torch.randint(1000, (batch_size,)), torch.randint(1000, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    return model(*batch)


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
