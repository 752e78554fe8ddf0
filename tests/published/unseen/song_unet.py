"""U-Net of DDPM++ as NVlabs/edm trains it (training/networks.py, SongUNet with EDM's weights).

CIFAR-10 without classes by default: 128 channels doubled at each of three resolutions, four blocks
at each, one head of attention at 16 pixels, dropout of 0.13, labels of nine augmentations:
55,733,891 parameters. `doubled=(1, 2, 2, 2)` at 64 pixels is FFHQ's and AFHQ's: 61,805,571.
Resampling is a depthwise convolution with a box filter; attention is written out.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    image: int = 32,
    doubled: tuple[int, ...] = (2, 2, 2),
    channels: int = 128,
    blocks: int = 4,
    dropout: float = 0.13,
    classes: int = 0,
) -> nn.Module:
    return Preconditioned(image, tuple(doubled), channels, blocks, dropout, classes)


def make_batch(batch_size: int, image: int = 32, classes: int = 0) -> tuple[Tensor, ...]:
    images = torch.randn(batch_size, 3, image, image)
    return images, torch.randn(batch_size, 9), torch.rand(batch_size, max(classes, 1))


def compute_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    images, augmented, labels = batch
    noise = (torch.randn(len(images), 1, 1, 1, device=images.device) * 1.2 - 1.2).exp()
    made = model(images + torch.randn_like(images) * noise, noise, augmented, labels)
    weight = (noise**2 + 0.25) / (noise * 0.5) ** 2
    return (weight * (made - images) ** 2).sum() / len(images)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-3)


class Resized(nn.Module):
    """A box filter up or down, then a convolution if there is a kernel."""

    box: Tensor

    def __init__(self, inputs: int, outputs: int, kernel: int, way: str = ""):
        super().__init__()
        self.way = way
        self.conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2) if kernel else None
        if way:
            size = 1.0 if way == "up" else 0.25
            self.register_buffer("box", torch.full((inputs, 1, 2, 2), size))

    def forward(self, x: Tensor) -> Tensor:
        if self.way == "up":
            x = F.conv_transpose2d(x, self.box.to(x.dtype), groups=x.shape[1], stride=2)
        elif self.way:
            x = F.conv2d(x, self.box.to(x.dtype), groups=x.shape[1], stride=2)
        return x if self.conv is None else self.conv(x)


class Block(nn.Module):
    def __init__(
        self, inputs: int, outputs: int, seen: int, attention: bool, dropout: float, way: str = ""
    ):
        super().__init__()
        self.norm0, self.norm1 = nn.GroupNorm(32, inputs, 1e-6), nn.GroupNorm(32, outputs, 1e-6)
        self.conv0 = Resized(inputs, outputs, 3, way)
        self.conv1 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.affine, self.dropout = nn.Linear(seen, outputs), nn.Dropout(dropout)
        self.skip = Resized(inputs, outputs, 1, way) if way or inputs != outputs else None
        self.attention = attention
        if attention:
            self.norm2 = nn.GroupNorm(32, outputs, 1e-6)
            self.qkv = nn.Conv2d(outputs, 3 * outputs, 1)
            self.out = nn.Conv2d(outputs, outputs, 1)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        start = x if self.skip is None else self.skip(x)
        x = self.conv0(F.silu(self.norm0(x)))
        x = F.silu(self.norm1(x + self.affine(seen)[:, :, None, None]))
        x = (self.conv1(self.dropout(x)) + start) * math.sqrt(0.5)
        if self.attention:
            q, k, v = self.qkv(self.norm2(x)).flatten(2).unflatten(1, (-1, 3)).unbind(2)
            scores = torch.einsum("ncq,nck->nqk", q.float(), k.float() / math.sqrt(k.shape[1]))
            mixed = torch.einsum("nqk,nck->ncq", scores.softmax(2).to(q.dtype), v)
            x = (self.out(mixed.unflatten(2, x.shape[2:])) + x) * math.sqrt(0.5)
        return x


class Preconditioned(nn.Module):
    def __init__(
        self, image: int, doubled: tuple, channels: int, blocks: int, dropout: float, classes: int
    ):
        super().__init__()
        seen, self.channels = 4 * channels, channels
        self.augment = nn.Linear(9, channels, bias=False)
        self.label = nn.Linear(classes, channels) if classes else None
        self.map0, self.map1 = nn.Linear(channels, seen), nn.Linear(seen, seen)
        self.enter = nn.Conv2d(3, channels, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        width, kept = channels, [channels]
        for level, times in enumerate(doubled):
            near = image >> level == 16
            if level:
                self.down.append(Block(width, width, seen, False, dropout, "down"))
                kept.append(width)
            for _ in range(blocks):
                self.down.append(Block(width, channels * times, seen, near, dropout))
                width = channels * times
                kept.append(width)
        self.middle = nn.ModuleList(
            Block(width, width, seen, one, dropout) for one in (True, False)
        )
        self.plan: list[bool] = []
        for level, times in reversed(list(enumerate(doubled))):
            if level < len(doubled) - 1:
                self.up.append(Block(width, width, seen, False, dropout, "up"))
                self.plan.append(False)
            for index in range(blocks + 1):
                near = index == blocks and image >> level == 16
                joined = width + kept.pop()
                self.up.append(Block(joined, channels * times, seen, near, dropout))
                self.plan.append(True)
                width = channels * times
        self.norm = nn.GroupNorm(32, width, 1e-6)
        self.leave = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor, noise: Tensor, augmented: Tensor, labels: Tensor) -> Tensor:
        half = self.channels // 2
        rates = 10000 ** (-torch.arange(half, device=x.device) / (half - 1))
        angles = (noise.flatten().log() / 4)[:, None] * rates
        seen = torch.cat((angles.sin(), angles.cos()), 1) + self.augment(augmented)
        if self.label is not None:
            seen = seen + self.label(labels)
        seen = F.silu(self.map1(F.silu(self.map0(seen))))
        scale = (noise**2 + 0.25).rsqrt()
        h = self.enter(x * scale)
        kept = [h]
        for block in self.down:
            h = block(h, seen)
            kept.append(h)
        for block in self.middle:
            h = block(h, seen)
        for block, joined in zip(self.up, self.plan, strict=True):
            h = block(torch.cat((h, kept.pop()), 1) if joined else h, seen)
        h = self.leave(F.silu(self.norm(h)))
        return x * 0.25 * scale**2 + h.float() * noise * 0.5 * scale
