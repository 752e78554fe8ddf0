"""FLUX.1 schnell's transformer, 11.9 billion parameters, on latents and text made beforehand.

Source: black-forest-labs/flux (model.py, schnell: 19 double and 38 single blocks, width 3,072, 24
heads, no guidance); MLPerf Training v5.1's flux1 trains it on images of 256 pixels (256 patches of
2 x 2 x 16 latents), 256 tokens of T5-XXL and the pooled CLIP embedding.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    double: int = 19, single: int = 38, hidden: int = 3072, heads: int = 24
) -> nn.Module:
    return Flux(double, single, hidden, heads)


def make_batch(
    batch_size: int, patches: int = 256, words: int = 256
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        torch.randn(batch_size, patches, 64),
        torch.randn(batch_size, words, 4096),
        torch.randn(batch_size, 768),
        torch.rand(batch_size),
    )


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    latents, words, pooled, times = batch
    return F.mse_loss(model(latents, words, pooled, times).float(), latents)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)


class Modulation(nn.Module):
    def __init__(self, hidden: int, parts: int):
        super().__init__()
        self.lin = nn.Linear(hidden, parts * hidden)
        self.parts = parts

    def forward(self, vec: Tensor) -> tuple[Tensor, ...]:
        return self.lin(F.silu(vec))[:, None].chunk(self.parts, dim=-1)


class Projections(nn.Module):
    """Queries, keys and values of one stream, normed and rotated."""

    def __init__(self, heads: int, dim: int):
        super().__init__()
        self.heads = heads
        self.query_norm = nn.RMSNorm(dim, eps=1e-6)
        self.key_norm = nn.RMSNorm(dim, eps=1e-6)

    def forward(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.query_norm(q).to(v.dtype), self.key_norm(k).to(v.dtype), v


def rotate(x: Tensor, table: Tensor) -> Tensor:
    cos, sin = table.to(x.dtype).unbind()
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def mix(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    mixed = F.scaled_dot_product_attention(rotate(q, table), rotate(k, table), v)
    return mixed.transpose(1, 2).flatten(2)


class Stream(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.mod = Modulation(hidden, 6)
        self.norm1 = nn.LayerNorm(hidden, elementwise_affine=False, eps=1e-6)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.split = Projections(heads, hidden // heads)
        self.out = nn.Linear(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden, elementwise_affine=False, eps=1e-6)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)


class Double(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.image = Stream(hidden, heads)
        self.text = Stream(hidden, heads)

    def forward(
        self, image: Tensor, text: Tensor, vec: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor]:
        mods, parts = [], []
        for x, stream in ((text, self.text), (image, self.image)):
            mod = stream.mod(vec)
            mods.append(mod)
            parts.append(stream.split(stream.qkv(stream.norm1(x) * (1 + mod[1]) + mod[0])))
        q, k, v = (torch.cat(pair, dim=2) for pair in zip(*parts, strict=True))
        mixed = mix(q, k, v, table)
        outs = []
        for x, stream, mod, own in zip(
            (text, image),
            (self.text, self.image),
            mods,
            mixed.split((text.shape[1], image.shape[1]), dim=1),
            strict=True,
        ):
            x = x + mod[2] * stream.out(own)
            inner = stream.norm2(x) * (1 + mod[4]) + mod[3]
            outs.append(x + mod[5] * stream.down(F.gelu(stream.up(inner), approximate="tanh")))
        return outs[1], outs[0]


class Single(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.mod = Modulation(hidden, 3)
        self.norm = nn.LayerNorm(hidden, elementwise_affine=False, eps=1e-6)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.split = Projections(heads, hidden // heads)
        self.out = nn.Linear(5 * hidden, hidden)

    def forward(self, x: Tensor, vec: Tensor, table: Tensor) -> Tensor:
        shift, scale, gate = self.mod(vec)
        inner = self.norm(x) * (1 + scale) + shift
        query, key, value = self.split(self.qkv(inner))
        mixed = mix(query, key, value, table)
        both = torch.cat((mixed, F.gelu(self.up(inner), approximate="tanh")), dim=-1)
        return x + gate * self.out(both)


def embedder(width: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, hidden))


class Flux(nn.Module):
    table: Tensor
    waves: Tensor

    def __init__(self, double: int, single: int, hidden: int, heads: int):
        super().__init__()
        self.image_in = nn.Linear(64, hidden)
        self.text_in = nn.Linear(4096, hidden)
        self.time_in = embedder(256, hidden)
        self.vector_in = embedder(768, hidden)
        self.double_blocks = nn.ModuleList(Double(hidden, heads) for _ in range(double))
        self.single_blocks = nn.ModuleList(Single(hidden, heads) for _ in range(single))
        self.mod = Modulation(hidden, 2)
        self.norm = nn.LayerNorm(hidden, elementwise_affine=False, eps=1e-6)
        self.out = nn.Linear(hidden, 64)
        self.register_buffer("table", torch.ones(2, 512, hidden // heads), persistent=False)
        self.register_buffer("waves", torch.ones(128), persistent=False)

    def forward(self, latents: Tensor, words: Tensor, pooled: Tensor, times: Tensor) -> Tensor:
        image, text = self.image_in(latents), self.text_in(words)
        angle = times[:, None] * self.waves
        wave = torch.cat((angle.cos(), angle.sin()), dim=-1)
        vec = self.time_in(wave) + self.vector_in(pooled)
        for block in self.double_blocks:
            image, text = block(image, text, vec, self.table)
        x = torch.cat((text, image), dim=1)
        for block in self.single_blocks:
            x = block(x, vec, self.table)
        x = x[:, text.shape[1] :]
        shift, scale = self.mod(vec)
        return self.out(self.norm(x) * (1 + scale) + shift)
