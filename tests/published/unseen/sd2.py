"""U-Net of Stable Diffusion 2 in plain torch, 865,910,724 parameters, on latents made beforehand.

Source: unet/config.json of stabilityai/stable-diffusion-2-base: widths 320, 640, 1280 and 1280, two
residual blocks a level (three on the way up), heads of 64, linear projections, text of width 1,024.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = (320, 640, 1280, 1280)


def build_model(latent: int = 32) -> nn.Module:
    return UNet()


def make_batch(batch_size: int = 16, latent: int = 32) -> tuple[Tensor, Tensor, Tensor]:
    latents = torch.randn(batch_size, 4, latent, latent)
    return latents, torch.rand(batch_size), torch.randn(batch_size, 77, 1024)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    return F.mse_loss(model(*batch).float(), batch[0])


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01)


class Residual(nn.Module):
    def __init__(self, width: int, out: int):
        super().__init__()
        self.norm1 = nn.GroupNorm(32, width, eps=1e-5)
        self.conv1 = nn.Conv2d(width, out, 3, padding=1)
        self.time = nn.Linear(1280, out)
        self.norm2 = nn.GroupNorm(32, out, eps=1e-5)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(width, out, 1) if width != out else None

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (x if self.skip is None else self.skip(x))


class Attention(nn.Module):
    def __init__(self, width: int, seen: int):
        super().__init__()
        self.heads = width // 64
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = nn.Linear(seen, width, bias=False), nn.Linear(seen, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.q(x), self.k(seen), self.v(seen))
        )
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.GroupNorm(32, width, eps=1e-6)
        self.enter = nn.Linear(width, width)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.own, self.cross = Attention(width, width), Attention(width, 1024)
        self.up = nn.Linear(width, 8 * width)
        self.down = nn.Linear(4 * width, width)
        self.leave = nn.Linear(width, width)

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        x = self.enter(self.norm(image).flatten(2).transpose(1, 2))
        inner = self.norm1(x)
        x = x + self.own(inner, inner)
        x = x + self.cross(self.norm2(x), text)
        inner, gate = self.up(self.norm3(x)).chunk(2, dim=-1)
        x = self.leave(x + self.down(inner * F.gelu(gate)))
        return image + x.transpose(1, 2).unflatten(2, image.shape[2:])


class Stage(nn.Module):
    """A residual block and, where there is one, its transformer."""

    def __init__(self, width: int, out: int, attends: bool):
        super().__init__()
        self.residual = Residual(width, out)
        self.transformer = Transformer(out) if attends else None

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        x = self.residual(x, time)
        return x if self.transformer is None else self.transformer(x, text)


class UNet(nn.Module):
    waves: Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("waves", torch.ones(160), persistent=False)
        self.time = nn.Sequential(nn.Linear(320, 1280), nn.SiLU(), nn.Linear(1280, 1280))
        self.enter = nn.Conv2d(4, 320, 3, padding=1)
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        kept, width = [320], 320
        for level, out in enumerate(WIDTHS):
            for _ in range(2):
                self.down.append(Stage(width, out, level < 3))
                width = out
                kept.append(width)
            if level < 3:
                self.shrink.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
                kept.append(width)
        self.middle1 = Stage(1280, 1280, True)
        self.middle2 = Stage(1280, 1280, False)
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for level in (3, 2, 1, 0):
            out = WIDTHS[level]
            for _ in range(3):
                self.up.append(Stage(width + kept.pop(), out, level < 3))
                width = out
            if level:
                self.grow.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm = nn.GroupNorm(32, 320, eps=1e-5)
        self.leave = nn.Conv2d(320, 4, 3, padding=1)

    def forward(self, latents: Tensor, times: Tensor, text: Tensor) -> Tensor:
        angle = times[:, None] * self.waves
        time = self.time(torch.cat((angle.cos(), angle.sin()), dim=-1))
        x = self.enter(latents)
        kept = [x]
        for index, stage in enumerate(self.down):
            x = stage(x, time, text)
            kept.append(x)
            if index % 2 and index < 7:
                x = self.shrink[index // 2](x)
                kept.append(x)
        x = self.middle2(self.middle1(x, time, text), time, text)
        for index, stage in enumerate(self.up):
            x = stage(torch.cat((x, kept.pop()), dim=1), time, text)
            if index % 3 == 2 and index < 11:
                x = self.grow[index // 3](F.interpolate(x, scale_factor=2.0))
        return self.leave(F.silu(self.norm(x)))
