"""Image encoder of Segment Anything (facebookresearch/segment-anything, modeling/image_encoder.py).

ViT-H by default, 637,026,048 parameters: windows of 14 patches in all blocks but every eighth,
attention written out with positions relative to rows and columns, a neck of two convolutions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 32,
    hidden: int = 1280,
    heads: int = 16,
    window: int = 14,
    image: int = 1024,
    patch: int = 16,
    out: int = 256,
) -> nn.Module:
    return Encoder(layers, hidden, heads, window, image // patch, patch, out)


def make_batch(
    batch_size: int, image: int = 1024, patch: int = 16, out: int = 256
) -> tuple[Tensor, Tensor]:
    side = image // patch
    return torch.randn(batch_size, 3, image, image), torch.randn(batch_size, out, side, side)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.mse_loss(model(batch[0]), batch[1])


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-3)


class ChannelNorm(nn.Module):
    """A layer norm over channels, operation by operation."""

    def __init__(self, channels: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        spread = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(spread + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, side: int):
        super().__init__()
        self.heads, self.scale = heads, (hidden // heads) ** -0.5
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.rows = nn.Parameter(torch.zeros(2 * side - 1, hidden // heads))
        self.columns = nn.Parameter(torch.zeros(2 * side - 1, hidden // heads))

    def forward(self, x: Tensor) -> Tensor:
        batch, side = x.shape[0], x.shape[1]
        qkv = self.qkv(x).reshape(batch, side * side, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.reshape(3, batch * self.heads, side * side, -1).unbind(0)
        scores = (query * self.scale) @ key.transpose(-2, -1)
        places = torch.arange(side, device=x.device)
        apart = places[:, None] - places[None, :] + side - 1
        shaped = query.reshape(batch * self.heads, side, side, -1)
        by_row = torch.einsum("bhwc,hkc->bhwk", shaped, self.rows[apart])
        by_column = torch.einsum("bhwc,wkc->bhwk", shaped, self.columns[apart])
        scores = scores.view(-1, side, side, side, side)
        scores = scores + by_row[:, :, :, :, None] + by_column[:, :, :, None, :]
        shares = scores.view(-1, side * side, side * side).softmax(dim=-1)
        mixed = (shares @ value).view(batch, self.heads, side, side, -1)
        return self.out(mixed.permute(0, 2, 3, 1, 4).reshape(batch, side, side, -1))


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, window: int, side: int):
        super().__init__()
        self.window = window
        self.norm1 = nn.LayerNorm(hidden, eps=1e-6)
        self.attention = Attention(hidden, heads, window or side)
        self.norm2 = nn.LayerNorm(hidden, eps=1e-6)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm1(x)
        if self.window:
            batch, side, _, hidden = inner.shape
            extra = -side % self.window
            count = (side + extra) // self.window
            inner = F.pad(inner, (0, 0, 0, extra, 0, extra))
            inner = inner.view(batch, count, self.window, count, self.window, hidden)
            inner = inner.permute(0, 1, 3, 2, 4, 5).contiguous()
            inner = self.attention(inner.view(-1, self.window, self.window, hidden))
            inner = inner.view(batch, count, count, self.window, self.window, hidden)
            inner = inner.permute(0, 1, 3, 2, 4, 5).contiguous()
            inner = inner.view(batch, side + extra, side + extra, hidden)
            inner = inner[:, :side, :side].contiguous()
        else:
            inner = self.attention(inner)
        x = x + inner
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    def __init__(
        self, layers: int, hidden: int, heads: int, window: int, side: int, patch: int, out: int
    ):
        super().__init__()
        self.embed = nn.Conv2d(3, hidden, patch, patch)
        self.positions = nn.Parameter(torch.zeros(1, side, side, hidden))
        every = layers // 4
        self.blocks = nn.ModuleList(
            Block(hidden, heads, 0 if (index + 1) % every == 0 else window, side)
            for index in range(layers)
        )
        self.neck = nn.Sequential(
            nn.Conv2d(hidden, out, 1, bias=False),
            ChannelNorm(out),
            nn.Conv2d(out, out, 3, padding=1, bias=False),
            ChannelNorm(out),
        )

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images).permute(0, 2, 3, 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.neck(x.permute(0, 3, 1, 2))
