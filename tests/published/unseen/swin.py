"""Swin Transformer as microsoft/Swin-Transformer trains it on ImageNet: Swin-B by default.

Windows of 7 at 224 pixels, 24 blocks, attention written out: 87,768,224 parameters.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    width: int = 128,
    depths: tuple[int, ...] = (2, 2, 18, 2),
    heads: tuple[int, ...] = (4, 8, 16, 32),
    window: int = 7,
    drop_path: float = 0.5,
) -> nn.Module:
    return Swin(width, depths, heads, window, drop_path)


def make_batch(batch_size: int, image: int = 224) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 3, image, image), torch.rand(batch_size, 1000)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, shares = batch
    return (-shares * F.log_softmax(model(images).float(), -1)).sum(-1).mean()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.05)


def dropped(x: Tensor, share: float) -> Tensor:
    if not share:
        return x
    kept = (1 - share + torch.rand(len(x), 1, 1, dtype=x.dtype, device=x.device)).floor()
    return x / (1 - share) * kept


def in_windows(x: Tensor, window: int) -> Tensor:
    """Return (batch, height, breadth, width) as (windows, window x window, width)."""
    batch, height, breadth, width = x.shape
    x = x.view(batch, height // window, window, breadth // window, window, width)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, window * window, width)


class WindowAttention(nn.Module):
    places: Tensor

    def __init__(self, width: int, heads: int, window: int):
        super().__init__()
        self.heads = heads
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        row = torch.arange(0, window * (2 * window - 1), 2 * window - 1)
        place = (row[:, None] + torch.arange(window)[None]).flatten()
        places = place[:, None] + place.flip(0)[None]
        self.register_buffer("places", places.flip(1).contiguous(), persistent=False)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        count, length, width = x.shape
        qkv = self.qkv(x).reshape(count, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        query = query * (width // self.heads) ** -0.5
        scores = query @ key.transpose(-2, -1)
        bias = self.table[self.places.view(-1)].view(length, length, -1)
        scores = scores + bias.permute(2, 0, 1).contiguous().unsqueeze(0)
        if mask is not None:
            windows = len(mask)
            scores = scores.view(count // windows, windows, self.heads, length, length)
            scores = scores + mask.unsqueeze(1).unsqueeze(0)
            scores = scores.view(-1, self.heads, length, length)
        mixed = scores.softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(count, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, window: int, shift: int, drop_path: float):
        super().__init__()
        self.window, self.shift, self.drop_path = window, shift, drop_path
        self.norm1 = nn.LayerNorm(width)
        self.attention = WindowAttention(width, heads, window)
        self.norm2 = nn.LayerNorm(width)
        self.ffn = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, side: int) -> Tensor:
        x = x + dropped(self.shifted(self.norm1(x), side), self.drop_path)
        return x + dropped(self.ffn(self.norm2(x)), self.drop_path)

    def shifted(self, x: Tensor, side: int) -> Tensor:
        batch, _, width = x.shape
        window, shift = self.window, self.shift
        pad = -side % window
        x = F.pad(x.view(batch, side, side, width), (0, 0, 0, pad, 0, pad))
        whole, mask = side + pad, None
        if shift:
            x = torch.roll(x, shifts=(-shift, -shift), dims=(1, 2))
            mask = self.mask(whole, x)
        x = self.attention(in_windows(x, window), mask)
        count = whole // window
        x = x.view(batch, count, count, window, window, width).permute(0, 1, 3, 2, 4, 5)
        x = x.contiguous().view(batch, whole, whole, width)
        if shift:
            x = torch.roll(x, shifts=(shift, shift), dims=(1, 2))
        if pad:
            x = x[:, :side, :side].contiguous()
        return x.view(batch, side * side, width)

    def mask(self, whole: int, x: Tensor) -> Tensor:
        """Return which pairs of a window come from different sides of the image."""
        areas = torch.zeros(1, whole, whole, 1, device=x.device)
        parts = (slice(0, -self.window), slice(-self.window, -self.shift), slice(-self.shift, None))
        for row, rows in enumerate(parts):
            for column, columns in enumerate(parts):
                areas[:, rows, columns] = 3 * row + column
        areas = in_windows(areas, self.window).squeeze(2)
        apart = areas.unsqueeze(1) - areas.unsqueeze(2)
        return apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0)


class Merging(nn.Module):
    """Join each 2 x 2 positions into one of twice the width."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduce = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor, side: int) -> Tensor:
        x = x.view(len(x), side, side, -1).permute(0, 3, 1, 2)
        return self.reduce(self.norm(F.unfold(x, 2, stride=2).transpose(1, 2)))


class Swin(nn.Module):
    def __init__(
        self,
        width: int,
        depths: tuple[int, ...],
        heads: tuple[int, ...],
        window: int,
        drop_path: float,
    ):
        super().__init__()
        self.embed = nn.Conv2d(3, width, 4, 4)
        self.embed_norm = nn.LayerNorm(width)
        shares = [drop_path * place / (sum(depths) - 1) for place in range(sum(depths))]
        self.stages, self.merges = nn.ModuleList(), nn.ModuleList()
        for stage, (depth, count) in enumerate(zip(depths, heads, strict=True)):
            here = width * 2**stage
            first = sum(depths[:stage])
            self.stages.append(
                nn.ModuleList(
                    Block(here, count, window, window // 2 * (index % 2), shares[first + index])
                    for index in range(depth)
                )
            )
            if stage < len(depths) - 1:
                self.merges.append(Merging(here))
        last = width * 2 ** (len(depths) - 1)
        self.last = nn.LayerNorm(last)
        self.head = nn.Linear(last, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images)
        side = x.shape[2]
        x = self.embed_norm(x.flatten(2).transpose(1, 2))
        for stage, blocks in enumerate(self.stages):
            for block in blocks.children():
                x = block(x, side)
            if stage < len(self.merges):
                x = self.merges[stage](x, side)
                side //= 2
        return self.head(self.last(x).mean(1))
