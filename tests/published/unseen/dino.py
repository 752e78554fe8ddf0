"""DINO of facebookresearch/dino with a ViT: a student that sees all crops, a teacher that sees two.

Each passes two crops of 224 pixels together, the student eight of 96 pixels after them; a head of
three layers with 65,536 outputs scores all of them at once. The moving average that the teacher is
of the student, and of the centre, is left out: it makes no tensor that lives on.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 12, hidden: int = 384, heads: int = 6, patch: int = 16, outputs: int = 65536
) -> nn.Module:
    return DINO(layers, hidden, heads, patch, outputs)


def make_batch(batch_size: int, local_crops: int = 8) -> tuple[Tensor, Tensor]:
    large = torch.randn(2, batch_size, 3, 224, 224)
    return large, torch.randn(local_crops, batch_size, 3, 96, 96)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return model(*batch)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    trained = [one for one in parameters if one.requires_grad]
    return torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.04)


def dropped(x: Tensor, share: float) -> Tensor:
    if not share:
        return x
    kept = (1 - share + torch.rand(len(x), 1, 1, dtype=x.dtype, device=x.device)).floor()
    return x / (1 - share) * kept


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, drop_path: float):
        super().__init__()
        self.heads = heads
        self.drop_path = drop_path
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
        x = x + dropped(self.out((shares @ v).transpose(1, 2).flatten(2)), self.drop_path)
        return x + dropped(self.down(F.gelu(self.up(self.norm2(x)))), self.drop_path)


class ViT(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, patch: int, drop_path: float):
        super().__init__()
        self.patch = patch
        self.embed = nn.Conv2d(3, hidden, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, hidden))
        self.positions = nn.Parameter(torch.zeros(1, (224 // patch) ** 2 + 1, hidden))
        self.blocks = nn.ModuleList(
            Block(hidden, heads, drop_path * index / max(1, layers - 1)) for index in range(layers)
        )
        self.norm = nn.LayerNorm(hidden, eps=1e-6)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1)
        x = x + self.placed(images.shape[-1] // self.patch)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)[:, 0]

    def placed(self, side: int) -> Tensor:
        whole = 224 // self.patch
        if side == whole:
            return self.positions
        grid = self.positions[:, 1:].unflatten(1, (whole, whole)).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, size=(side, side), mode="bicubic")
        return torch.cat((self.positions[:, :1], grid.permute(0, 2, 3, 1).flatten(1, 2)), 1)


class Head(nn.Module):
    def __init__(self, hidden: int, outputs: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(hidden, 2048),
            nn.GELU(),
            nn.Linear(2048, 2048),
            nn.GELU(),
            nn.Linear(2048, 256),
        )
        self.length = nn.Parameter(torch.ones(outputs, 1))
        self.direction = nn.Parameter(torch.randn(outputs, 256))

    def forward(self, x: Tensor) -> Tensor:
        weight = torch._weight_norm(self.direction, self.length, 0)  # pyright: ignore[reportPrivateImportUsage]
        return F.linear(F.normalize(self.layers(x), dim=-1, p=2), weight)


class DINO(nn.Module):
    centre: Tensor

    def __init__(self, layers: int, hidden: int, heads: int, patch: int, outputs: int):
        super().__init__()
        self.student = ViT(layers, hidden, heads, patch, 0.1)
        self.student_head = Head(hidden, outputs)
        self.teacher = ViT(layers, hidden, heads, patch, 0.0).requires_grad_(False)
        self.teacher_head = Head(hidden, outputs).requires_grad_(False)
        self.register_buffer("centre", torch.zeros(1, outputs))

    def forward(self, large: Tensor, small: Tensor) -> Tensor:
        images = large.flatten(0, 1)
        with torch.no_grad():
            taught = self.teacher_head(self.teacher(images))
        seen = torch.cat((self.student(images), self.student(small.flatten(0, 1))))
        scores = (self.student_head(seen) / 0.1).chunk(len(large) + len(small))
        shares = F.softmax((taught - self.centre) / 0.04, dim=-1).detach().chunk(2)
        terms = [
            torch.sum(-share * F.log_softmax(score, dim=-1), dim=-1).mean()
            for place, share in enumerate(shares)
            for other, score in enumerate(scores)
            if other != place
        ]
        return torch.stack(terms).mean()
