"""Stable Diffusion 1.x with LoRA or textual inversion, as the scripts of diffusers do it.

`stable_diffusion.py` with `train="lora"` (train_text_to_image_lora.py of 2023: rank 4 beside
queries, keys, values and outputs of all attention of a frozen U-Net, 797,184 parameters) and
"inversion" (textual_inversion.py: the text encoder's word embeddings alone get gradients, which
pass through the frozen U-Net; 37,945,344 parameters of which all but one row are put back).
The VAE's encoder runs in each step without gradients.
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KINDS = {
    "sd1": ((320, 640, 1280, 1280), (1, 1, 1, 0), 768, 8, False),
    "sdxl": ((320, 640, 1280), (0, 2, 10), 2048, 0, True),
    "tiny": ((32, 64), (1, 0), 32, 2, False),
}


def build_model(
    kind: str = "sd1",
    train: str = "lora",
    attention: str = "eager",
    ema: bool = False,
    cached: bool = False,
    image: int = 512,
) -> nn.Module:
    return Trainer(kind, train, attention == "fused", ema, cached)


def make_batch(
    batch_size: int, kind: str = "sd1", cached: bool = False, image: int = 512
) -> tuple[Tensor, ...]:
    seen = KINDS[kind][2]
    hints = torch.randn(batch_size, 3, image, image)
    times, added = torch.rand(batch_size), torch.randn(batch_size, 2816)
    if cached:
        latents = torch.randn(batch_size, 4, image // 8, image // 8)
        return latents, torch.randn(batch_size, 77, seen), times, hints[:, :, :8, :8], added
    images = torch.randn(batch_size, 3, image, image)
    return images, torch.randint(49408, (batch_size, 77)), times, hints, added


def compute_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    made, noise = model(*batch)
    return F.mse_loss(made.float(), noise.float())


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW([one for one in parameters if one.requires_grad], lr=1e-5)


class Residual(nn.Module):
    def __init__(self, width: int, out: int, time: int):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, width), nn.GroupNorm(32, out)
        self.conv1 = nn.Conv2d(width, out, 3, padding=1)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(time, out) if time else None
        self.skip = nn.Conv2d(width, out, 1) if width != out else None

    def forward(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        if self.time is not None and time is not None:
            h = h + self.time(F.silu(time))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return (x if self.skip is None else self.skip(x)) + h


class Attention(nn.Module):
    def __init__(self, width: int, seen: int, heads: int, fused: bool):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = nn.Linear(seen, width, bias=False), nn.Linear(seen, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.q(x), self.k(seen), self.v(seen))
        )
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = (q @ k.transpose(2, 3)) * q.shape[-1] ** -0.5
            mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class Adapted(nn.Module):
    def __init__(self, base: nn.Linear, rank: int):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class Layer(nn.Module):
    def __init__(self, width: int, seen: int, heads: int, fused: bool):
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.own = Attention(width, width, heads, fused)
        self.cross = Attention(width, seen, heads, fused)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        inner = self.norm1(x)
        x = x + self.own(inner, inner)
        x = x + self.cross(self.norm2(x), text)
        inner, gate = self.up(self.norm3(x)).chunk(2, dim=-1)
        return x + self.down(inner * F.gelu(gate))


class Transformer(nn.Module):
    def __init__(self, width: int, depth: int, seen: int, heads: int, fused: bool):
        super().__init__()
        self.norm = nn.GroupNorm(32, width, eps=1e-6)
        self.enter, self.leave = nn.Linear(width, width), nn.Linear(width, width)
        heads = heads or width // 64
        self.layers = nn.ModuleList(Layer(width, seen, heads, fused) for _ in range(depth))

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        x = self.enter(self.norm(image).flatten(2).transpose(1, 2))
        for layer in self.layers:
            x = layer(x, text)
        return image + self.leave(x).transpose(1, 2).unflatten(2, image.shape[2:])


class Stage(nn.Module):
    def __init__(self, width, out, depth, seen, heads, fused):
        super().__init__()
        self.residual = Residual(width, out, 1280)
        self.transformer = Transformer(out, depth, seen, heads, fused) if depth else None

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        x = self.residual(x, time)
        return x if self.transformer is None else self.transformer(x, text)


class Half(nn.Module):
    """The way down and the middle, which U-Net and ControlNet share."""

    def __init__(self, kind: str, fused: bool):
        super().__init__()
        widths, depths, seen, heads, added = KINDS[kind]
        self.time = nn.Sequential(nn.Linear(320, 1280), nn.SiLU(), nn.Linear(1280, 1280))
        self.added = None
        if added:
            self.added = nn.Sequential(nn.Linear(2816, 1280), nn.SiLU(), nn.Linear(1280, 1280))
        self.enter = nn.Conv2d(4, widths[0], 3, padding=1)
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        self.kept, width = [widths[0]], widths[0]
        for level, (out, depth) in enumerate(zip(widths, depths, strict=True)):
            for _ in range(2):
                self.down.append(Stage(width, out, depth, seen, heads, fused))
                width = out
                self.kept.append(width)
            if level < len(widths) - 1:
                self.shrink.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
                self.kept.append(width)
        self.middle1 = Stage(width, width, max(depths[-1], 1), seen, heads, fused)
        self.middle2 = Stage(width, width, 0, seen, heads, fused)

    def start(self, times: Tensor, added: Tensor, like: Tensor) -> Tensor:
        waves = times[:, None] * torch.ones(1, 320, device=times.device)
        time = self.time(waves.to(like.dtype))
        return time if self.added is None else time + self.added(added)

    def run(self, x: Tensor, time: Tensor, text: Tensor) -> tuple[Tensor, list[Tensor]]:
        kept = [x]
        for index, stage in enumerate(self.down):
            x = stage(x, time, text)
            kept.append(x)
            if index % 2 and index // 2 < len(self.shrink):
                x = self.shrink[index // 2](x)
                kept.append(x)
        return self.middle2(self.middle1(x, time, text), time, text), kept


class UNet(Half):
    def __init__(self, kind: str, fused: bool):
        super().__init__(kind, fused)
        widths, depths, seen, heads, _ = KINDS[kind]
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        kept, width = list(self.kept), widths[-1]
        for level in reversed(range(len(widths))):
            out = widths[level]
            for _ in range(3):
                self.up.append(Stage(width + kept.pop(), out, depths[level], seen, heads, fused))
                width = out
            if level:
                self.grow.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm = nn.GroupNorm(32, width)
        self.leave = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x, times, text, added, extra=None) -> Tensor:
        time = self.start(times, added, x)
        x, kept = self.run(self.enter(x), time, text)
        if extra is not None:
            kept = [one + more for one, more in zip(kept, extra[0], strict=True)]
            x = x + extra[1]
        for index, stage in enumerate(self.up):
            x = stage(torch.cat((x, kept.pop()), 1), time, text)
            if index % 3 == 2 and index // 3 < len(self.grow):
                x = self.grow[index // 3](F.interpolate(x, scale_factor=2.0))
        return self.leave(F.silu(self.norm(x)))


class ControlNet(Half):
    def __init__(self, kind: str, fused: bool):
        super().__init__(kind, fused)
        sizes = (3, 16, 16, 32, 32, 96, 96, 256)
        strides = (1, 1, 2, 1, 2, 1, 2)
        self.hint = nn.ModuleList(
            nn.Conv2d(one, two, 3, stride, 1)
            for one, two, stride in zip(sizes, sizes[1:], strides, strict=False)
        )
        self.hint_out = nn.Conv2d(256, self.kept[0], 3, padding=1)
        self.zeros = nn.ModuleList(nn.Conv2d(one, one, 1) for one in self.kept)
        self.zero = nn.Conv2d(self.kept[-1], self.kept[-1], 1)

    def forward(self, x, times, text, added, hint):
        time = self.start(times, added, x)
        for conv in self.hint:
            hint = F.silu(conv(hint))
        x, kept = self.run(self.enter(x) + self.hint_out(hint), time, text)
        return [zero(one) for zero, one in zip(self.zeros, kept, strict=True)], self.zero(x)


class Encoder(nn.Module):
    def __init__(self, tiny: bool):
        super().__init__()
        widths = (32, 32, 32, 32) if tiny else (128, 256, 512, 512)
        self.enter, width = nn.Conv2d(3, widths[0], 3, padding=1), widths[0]
        self.blocks, self.shrink = nn.ModuleList(), nn.ModuleList()
        for level, out in enumerate(widths):
            for _ in range(2):
                self.blocks.append(Residual(width, out, 0))
                width = out
            if level < 3:
                self.shrink.append(nn.Conv2d(width, width, 3, stride=2))
        self.middle1, self.middle2 = Residual(width, width, 0), Residual(width, width, 0)
        self.norm, self.attention = nn.GroupNorm(32, width), Attention(width, width, 1, True)
        self.norm_out, self.leave = nn.GroupNorm(32, width), nn.Conv2d(width, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for index, block in enumerate(self.blocks):
            x = block(x)
            if index % 2 and index // 2 < 3:
                x = self.shrink[index // 2](F.pad(x, (0, 1, 0, 1)))
        x = self.middle1(x)
        inner = self.norm(x).flatten(2).transpose(1, 2)
        x = x + self.attention(inner, inner).transpose(1, 2).unflatten(2, x.shape[2:])
        mean, _ = self.leave(F.silu(self.norm_out(self.middle2(x)))).chunk(2, 1)
        return 0.18215 * mean


class TextEncoder(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.words, self.places = nn.Embedding(49408, hidden), nn.Embedding(77, hidden)
        heads = max(hidden // 64, 1)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                hidden, heads, 4 * hidden, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(12)
        )
        self.norm = nn.LayerNorm(hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places.weight
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Trainer(nn.Module):
    def __init__(self, kind: str, train: str, fused: bool, ema: bool, cached: bool):
        super().__init__()
        self.unet = UNet(kind, fused)
        self.control = ControlNet(kind, fused) if train == "controlnet" else None
        if self.control is not None:
            self.unet.requires_grad_(False)
        self.inverts = train == "inversion"
        if train in ("lora", "inversion"):
            self.unet.requires_grad_(False)
        if train == "lora":
            for module in list(self.unet.modules()):
                if isinstance(module, Attention):
                    for name in ("q", "k", "v", "out"):
                        setattr(module, name, Adapted(getattr(module, name), 4))
        self.average = copy.deepcopy(self.unet).requires_grad_(False) if ema else None
        self.vae = None if cached else Encoder(kind == "tiny").requires_grad_(False)
        self.text = None if cached else TextEncoder(KINDS[kind][2]).requires_grad_(False)
        if self.inverts and self.text is not None:
            self.text.words.requires_grad_(True)

    def forward(self, images, captions, times, hints, added) -> tuple[Tensor, Tensor]:
        latents, text = images, captions
        if self.vae is not None and self.text is not None:
            with torch.no_grad():
                latents = self.vae(images)
            with torch.set_grad_enabled(self.inverts):
                text = self.text(captions)
        noise = torch.randn_like(latents)
        share = times[:, None, None, None]
        noised = share.sqrt() * latents + (1 - share).sqrt() * noise
        extra = None
        if self.control is not None:
            extra = self.control(noised, times, text, added, hints)
        return self.unet(noised, times, text, added, extra), noise
