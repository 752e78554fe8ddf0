"""Masked autoencoder of facebookresearch/mae.

A ViT sees a quarter of the patches; a smaller ViT fills in the others.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 24, hidden: int = 1024, heads: int = 16, patch: int = 16, image: int = 224
) -> nn.Module:
    return MAE(layers, hidden, heads, patch, image)


def make_batch(batch_size: int, image: int = 224) -> tuple[Tensor]:
    return (torch.randn(batch_size, 3, image, image),)


def compute_loss(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
    return model(batch[0])


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=2.4e-3, betas=(0.9, 0.95), weight_decay=0.05)


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(hidden, eps=1e-6)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden, eps=1e-6)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            self.qkv(self.norm1(x))
            .unflatten(-1, (3, self.heads, -1))
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        shares = ((q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5).softmax(-1)
        x = x + self.out((shares @ v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class MAE(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, patch: int, image: int):
        super().__init__()
        count = (image // patch) ** 2
        self.patch = patch
        self.embed = nn.Conv2d(3, hidden, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, hidden))
        self.positions = nn.Parameter(torch.zeros(1, count + 1, hidden), requires_grad=False)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden, eps=1e-6)
        self.narrow = nn.Linear(hidden, 512)
        self.mask = nn.Parameter(torch.zeros(1, 1, 512))
        self.places = nn.Parameter(torch.zeros(1, count + 1, 512), requires_grad=False)
        self.decoder = nn.ModuleList(Block(512, 16) for _ in range(8))
        self.decoder_norm = nn.LayerNorm(512, eps=1e-6)
        self.pixels = nn.Linear(512, patch * patch * 3)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images).flatten(2).transpose(1, 2) + self.positions[:, 1:]
        batch, count, width = x.shape
        keep = count // 4
        order = torch.rand(batch, count, device=x.device).argsort(1)
        back = order.argsort(1)
        x = x.gather(1, order[:, :keep, None].repeat(1, 1, width))
        first = (self.first + self.positions[:, :1]).expand(batch, -1, -1)
        x = torch.cat((first, x), 1)
        for block in self.blocks:
            x = block(x)
        x = self.narrow(self.norm(x))
        full = torch.cat((x[:, 1:], self.mask.repeat(batch, count - keep, 1)), 1)
        full = full.gather(1, back[:, :, None].repeat(1, 1, 512))
        x = torch.cat((x[:, :1], full), 1) + self.places
        for block in self.decoder:
            x = block(x)
        made = self.pixels(self.decoder_norm(x))[:, 1:]
        side = images.shape[-1] // self.patch
        target = images.reshape(batch, 3, side, self.patch, side, self.patch)
        target = target.permute(0, 2, 4, 3, 5, 1).reshape(batch, count, -1)
        mean, variance = target.mean(-1, keepdim=True), target.var(-1, keepdim=True)
        losses = (made - (target - mean) / (variance + 1e-6) ** 0.5).square().mean(-1)
        hidden = (back >= keep).float()
        return (losses * hidden).sum() / hidden.sum()
