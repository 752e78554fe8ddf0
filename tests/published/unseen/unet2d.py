"""UNet2DModel of diffusers as examples/unconditional_image_generation makes it: 64 pixels.

Six resolutions of 128, 128, 256, 256, 512 and 512 channels, two blocks each, attention with heads
of eight channels at the fifth, written out: 113,673,219 parameters. `ema` keeps an average of it
beside (--use_ema), which is not moved here.
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = (128, 128, 256, 256, 512, 512)


def build_model(image: int = 64, ema: bool = True) -> nn.Module:
    return Trainer(ema)


def make_batch(batch_size: int, image: int = 64) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 3, image, image), torch.randint(1000, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, times = batch
    noise = torch.randn_like(images)
    share = (1 - times / 1000)[:, None, None, None]
    return F.mse_loss(model(share.sqrt() * images + (1 - share).sqrt() * noise, times), noise)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW([one for one in parameters if one.requires_grad], lr=1e-4)


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, inputs), nn.GroupNorm(32, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(512, outputs)
        self.short = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        made = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        made = self.conv2(F.silu(self.norm2(made)))
        return made + (x if self.short is None else self.short(x))


class Attention(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out, self.heads = nn.Linear(width, width), width // 8

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = (
            layer(inner).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        shares = ((q @ k.transpose(2, 3)) * q.shape[-1] ** -0.5).softmax(-1)
        mixed = self.out((shares @ v).transpose(1, 2).flatten(2))
        return x + mixed.transpose(1, 2).unflatten(2, x.shape[2:])


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time1, self.time2 = nn.Linear(128, 512), nn.Linear(512, 512)
        self.enter = nn.Conv2d(3, WIDTHS[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        self.shrink, self.grow = nn.ModuleList(), nn.ModuleList()
        self.seen_down, self.seen_up = nn.ModuleList(), nn.ModuleList()
        width, kept = WIDTHS[0], [WIDTHS[0]]
        for level, out in enumerate(WIDTHS):
            for _ in range(2):
                self.down.append(Residual(width, out))
                self.seen_down.append(Attention(out) if level == 4 else nn.Identity())
                width = out
                kept.append(width)
            if level < 5:
                self.shrink.append(nn.Conv2d(width, width, 3, 2, 1))
                kept.append(width)
        self.middle1, self.middle2 = Residual(width, width), Residual(width, width)
        self.middle = Attention(width)
        for level, out in reversed(list(enumerate(WIDTHS))):
            for _ in range(3):
                self.up.append(Residual(width + kept.pop(), out))
                self.seen_up.append(Attention(out) if level == 4 else nn.Identity())
                width = out
            if level:
                self.grow.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm, self.leave = nn.GroupNorm(32, width), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        rates = 10000 ** (-torch.arange(64, device=x.device) / 64)
        angles = times[:, None] * rates
        time = self.time1(torch.cat((angles.sin(), angles.cos()), 1))
        time = self.time2(F.silu(time))
        x = self.enter(x)
        kept = [x]
        for index, (block, seen) in enumerate(zip(self.down, self.seen_down, strict=True)):
            x = seen(block(x, time))
            kept.append(x)
            if index % 2 and index // 2 < 5:
                x = self.shrink[index // 2](x)
                kept.append(x)
        x = self.middle2(self.middle(self.middle1(x, time)), time)
        for index, (block, seen) in enumerate(zip(self.up, self.seen_up, strict=True)):
            x = seen(block(torch.cat((x, kept.pop()), 1), time))
            if index % 3 == 2 and index // 3 < 5:
                x = self.grow[index // 3](F.interpolate(x, scale_factor=2.0))
        return self.leave(F.silu(self.norm(x)))


class Trainer(nn.Module):
    def __init__(self, ema: bool):
        super().__init__()
        self.unet = UNet()
        self.average = copy.deepcopy(self.unet).requires_grad_(False) if ema else None

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        return self.unet(x, times)
