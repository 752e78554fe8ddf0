"""Stable Diffusion 2 (base) from images and captions: a trained U-Net behind two frozen encoders.

mosaicml/diffusion-benchmark's benchmark.py: the VAE's encoder makes latents and OpenCLIP's text
encoder (23 layers of ViT-H's, in transformers with attention written out) the captions in every
step. 865,910,724 parameters are trained; the VAE's decoder, which never runs, is left out.
"""

import torch
import torch.nn.functional as F
from dit_vae import Encoder
from sd2 import UNet
from torch import Tensor, nn


def build_model(layers: int = 23, hidden: int = 1024, heads: int = 16) -> nn.Module:
    return Whole(TextEncoder(layers, hidden, heads))


def make_batch(batch_size: int, image: int = 512) -> tuple[Tensor, Tensor, Tensor]:
    images = torch.randn(batch_size, 3, image, image)
    return images, torch.randint(49408, (batch_size, 77)), torch.rand(batch_size)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    made, noise = model(*batch)
    return F.mse_loss(made, noise)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    trained = [one for one in parameters if one.requires_grad]
    return torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.001)


class TextBlock(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.value, self.out = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        inner = self.norm1(x)
        query, key, value = (
            layer(inner).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = query * query.shape[-1] ** -0.5 @ key.transpose(2, 3) + mask
        mixed = torch.softmax(scores, -1) @ value
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class TextEncoder(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int):
        super().__init__()
        self.words, self.places = nn.Embedding(49408, hidden), nn.Embedding(77, hidden)
        self.blocks = nn.ModuleList(TextBlock(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        x = self.words(tokens) + self.places(torch.arange(length, device=tokens.device))
        mask = torch.full((length, length), -1e4, device=x.device, dtype=x.dtype).triu(1)
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x)


class Whole(nn.Module):
    def __init__(self, text: TextEncoder):
        super().__init__()
        self.unet = UNet()
        self.vae = Encoder().requires_grad_(False)
        self.text = text.requires_grad_(False)

    def forward(self, images: Tensor, captions: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            mean, spread = self.vae(images).chunk(2, 1)
            latents = mean + (0.5 * spread.clamp(-30, 20)).exp() * torch.randn_like(mean)
            latents = 0.18215 * latents
            text = self.text(captions)
        noise = torch.randn_like(latents)
        share = times[:, None, None, None]
        noised = share.sqrt() * latents + (1 - share).sqrt() * noise
        return self.unet(noised, times, text), noise
