"""The transformer of CogVideoX on latents and prompt embeddings made beforehand: 2B by default.

Program: diffusers, CogVideoXTransformer3DModel, as a-r-r-o-w/cogvideox-factory trains it: 49 frames
of 480 x 720 are 13 x 60 x 90 latents of 16 channels, 17,550 patches of 2 x 2 behind 226 tokens of
text, attention over all of them in one kernel. `rank` adds adapters to queries, keys, values and
outputs and freezes the rest; 0 trains everything. 5B: 42 layers of 48 heads, rotary positions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 30,
    heads: int = 30,
    rotary: bool = False,
    rank: int = 0,
    frames: int = 13,
    height: int = 60,
    width: int = 90,
    text: int = 226,
) -> nn.Module:
    model = CogVideoX(layers, heads, rotary, frames * height * width // 4)
    if rank:
        model.requires_grad_(False)
        for block in model.blocks:
            for name in ("query", "key", "value", "out"):
                setattr(block, name, Adapter(getattr(block, name), rank))
    return model


def make_batch(
    batch_size: int, frames: int = 13, height: int = 60, width: int = 90, text: int = 226
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    shape = (batch_size, frames, 16, height, width)
    words = torch.randn(batch_size, text, 4096)
    return torch.randn(shape), words, torch.rand(batch_size), torch.randn(shape)


def compute_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    latents, words, times, noise = batch
    share = times[:, None, None, None, None]
    noised = share.sqrt() * latents + (1 - share).sqrt() * noise
    speed = model(noised, words, times)
    made = share.sqrt() * noised - (1 - share).sqrt() * speed
    weights = 1 / (1 - share.clamp(max=0.999))
    return (weights * (made - latents) ** 2).flatten(1).mean(1).mean()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW([one for one in parameters if one.requires_grad], lr=1e-4)


class Adapter(nn.Module):
    def __init__(self, base: nn.Linear, rank: int):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class Modulation(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(hidden), nn.Linear(512, 6 * hidden)

    def forward(self, video: Tensor, words: Tensor, time: Tensor):
        parts = self.linear(F.silu(time)).unsqueeze(1).chunk(6, -1)
        video = self.norm(video) * (1 + parts[1]) + parts[0]
        words = self.norm(words) * (1 + parts[4]) + parts[3]
        return video, words, parts[2], parts[5]


def turned(x: Tensor) -> Tensor:
    first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((-second, first), -1).flatten(-2)


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = Modulation(hidden), Modulation(hidden)
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.norm_q, self.norm_k = nn.LayerNorm(64, eps=1e-6), nn.LayerNorm(64, eps=1e-6)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(
        self, video: Tensor, words: Tensor, time: Tensor, cos, sin
    ) -> tuple[Tensor, Tensor]:
        length = words.shape[1]
        seen, read, gate, text_gate = self.norm1(video, words, time)
        x = torch.cat((read, seen), 1)
        query, key, value = (
            layer(x).unflatten(2, (self.heads, 64)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        query, key = self.norm_q(query), self.norm_k(key)
        if cos is not None:
            query, key = (
                torch.cat((one[:, :, :length], self.rotate(one[:, :, length:], cos, sin)), 2)
                for one in (query, key)
            )
        mixed = F.scaled_dot_product_attention(query, key, value)
        mixed = self.out(mixed.transpose(1, 2).flatten(2))
        video, words = video + gate * mixed[:, length:], words + text_gate * mixed[:, :length]
        seen, read, gate, text_gate = self.norm2(video, words, time)
        x = torch.cat((read, seen), 1)
        x = self.down(F.gelu(self.up(x), approximate="tanh"))
        return video + gate * x[:, length:], words + text_gate * x[:, :length]

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return (x.float() * cos + turned(x).float() * sin).to(x.dtype)


class CogVideoX(nn.Module):
    def __init__(self, layers: int, heads: int, rotary: bool, patches: int):
        super().__init__()
        hidden = 64 * heads
        self.rotary = rotary
        self.patch = nn.Conv2d(16, hidden, 2, 2)
        self.read = nn.Linear(4096, hidden)
        self.waves = hidden
        self.time = nn.Sequential(nn.Linear(hidden, 512), nn.SiLU(), nn.Linear(512, 512))
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm_final, self.norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.shift = nn.Linear(512, 2 * hidden)
        self.leave = nn.Linear(hidden, 64)
        table = torch.zeros(patches, 64 if rotary else hidden)
        self.register_buffer("places", table, persistent=False)
        if rotary:
            self.register_buffer("turns", torch.zeros(patches, 64), persistent=False)

    def forward(self, latents: Tensor, words: Tensor, times: Tensor) -> Tensor:
        count, frames, _, height, width = latents.shape
        x = self.patch(latents.flatten(0, 1)).flatten(2).transpose(1, 2)
        x = x.unflatten(0, (count, frames)).flatten(1, 2)
        words = self.read(words)
        cos = sin = None
        if self.rotary:
            cos, sin = self.places, self.turns
        else:
            x = x + self.places.to(x.dtype)
        waves = times[:, None] * torch.ones(1, self.waves, device=x.device)
        time = self.time(waves.to(x.dtype))
        for block in self.blocks:
            x, words = block(x, words, time, cos, sin)
        length = words.shape[1]
        x = self.norm_final(torch.cat((words, x), 1))[:, length:]
        shift, scale = self.shift(F.silu(time)).unsqueeze(1).chunk(2, -1)
        x = self.leave(self.norm(x) * (1 + scale) + shift)
        x = x.view(count, frames, height // 2, width // 2, 16, 2, 2)
        return x.permute(0, 1, 4, 2, 5, 3, 6).reshape(count, frames, 16, height, width)
