"""YOLOv5 (v6) of ultralytics/yolov5: n, s, m, l and x by `depth` and `width`; s by default.

Program: models/yolov5*.yaml, models/common.py, utils/loss.py: 80 classes, 3 anchors at strides of
8, 16 and 32, 640 pixels. 7,235,389 parameters (n 1,872,157, m 21,190,557, l 46,563,709,
x 86,749,405). Which cells match objects is given with the batch (`objects` of an image, each in
`matches` cells of a level); the program computes it from boxes. The average of the weights that
ModelEMA keeps beside them is left out.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES, ANCHORS = 80, 3


def build_model(depth: float = 0.33, width: float = 0.50, image: int = 640) -> nn.Module:
    return Yolo(depth, width)


def make_batch(
    batch_size: int, image: int = 640, objects: int = 20, matches: int = 5
) -> tuple[Tensor, ...]:
    found = batch_size * objects * matches
    parts = [torch.randn(batch_size, 3, image, image)]
    for stride in (8, 16, 32):
        cells = (image // stride) ** 2
        parts.append(torch.randint(batch_size * ANCHORS * cells, (found,)))
    parts += [torch.rand(found, 4), torch.randint(CLASSES, (found,))]
    return tuple(parts)


def compute_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    image, *cells, boxes, classes = batch
    total = image.new_zeros(())
    for made, cell in zip(model(image), cells, strict=True):
        flat = made.reshape(-1, CLASSES + 5).float()
        chosen = flat[cell]
        xy, wh = chosen[:, :2].sigmoid() * 2 - 0.5, (chosen[:, 2:4].sigmoid() * 2) ** 2
        overlap = ciou(torch.cat((xy, wh), 1), boxes)
        wanted = torch.zeros_like(flat[:, 4])
        wanted[cell] = overlap.detach().clamp(0)
        labels = F.one_hot(classes, CLASSES).to(chosen.dtype)
        total = total + (1 - overlap).mean()
        total = total + F.binary_cross_entropy_with_logits(flat[:, 4], wanted)
        total = total + F.binary_cross_entropy_with_logits(chosen[:, 5:], labels)
    return total * image.shape[0]


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.937, nesterov=True, weight_decay=5e-4)


def ciou(one: Tensor, two: Tensor) -> Tensor:
    low = torch.maximum(one[:, :2] - one[:, 2:] / 2, two[:, :2] - two[:, 2:] / 2)
    high = torch.minimum(one[:, :2] + one[:, 2:] / 2, two[:, :2] + two[:, 2:] / 2)
    both = (high - low).clamp(0).prod(1)
    shared = both / (one[:, 2:].prod(1) + two[:, 2:].prod(1) - both + 1e-7)
    apart = (one[:, :2] - two[:, :2]).pow(2).sum(1)
    turn = (torch.atan(one[:, 2] / (one[:, 3] + 1e-7)) - torch.atan(two[:, 2] / two[:, 3])).pow(2)
    return shared - apart - turn * (4 / math.pi**2)


class Conv(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, pad: int = -1):
        super().__init__()
        pad = kernel // 2 if pad < 0 else pad
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, pad, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.norm(self.conv(x)), inplace=True)


class Bottleneck(nn.Module):
    def __init__(self, width: int, shortcut: bool):
        super().__init__()
        self.one, self.two, self.shortcut = Conv(width, width), Conv(width, width, 3), shortcut

    def forward(self, x: Tensor) -> Tensor:
        made = self.two(self.one(x))
        return x + made if self.shortcut else made


class C3(nn.Module):
    def __init__(self, inputs: int, outputs: int, repeats: int, shortcut: bool = True):
        super().__init__()
        inner = outputs // 2
        self.one, self.two = Conv(inputs, inner), Conv(inputs, inner)
        self.out = Conv(2 * inner, outputs)
        self.blocks = nn.Sequential(*(Bottleneck(inner, shortcut) for _ in range(repeats)))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat((self.blocks(self.one(x)), self.two(x)), 1))


class Pooling(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.one, self.two = Conv(width, width // 2), Conv(2 * width, width)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.one(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.two(torch.cat(parts, 1))


class Yolo(nn.Module):
    def __init__(self, depth: float, width: float):
        super().__init__()
        w = [math.ceil(one * width / 8) * 8 for one in (64, 128, 256, 512, 1024)]
        n = [max(round(one * depth), 1) for one in (3, 6, 9)]
        self.stem = nn.Sequential(
            Conv(3, w[0], 6, 2, 2), Conv(w[0], w[1], 3, 2), C3(w[1], w[1], n[0])
        )
        self.p3 = nn.Sequential(Conv(w[1], w[2], 3, 2), C3(w[2], w[2], n[1]))
        self.p4 = nn.Sequential(Conv(w[2], w[3], 3, 2), C3(w[3], w[3], n[2]))
        self.p5 = nn.Sequential(Conv(w[3], w[4], 3, 2), C3(w[4], w[4], n[0]), Pooling(w[4]))
        self.top, self.mid = Conv(w[4], w[3]), Conv(w[3], w[2])
        self.up4, self.up3 = C3(2 * w[3], w[3], n[0], False), C3(2 * w[2], w[2], n[0], False)
        self.down3, self.down4 = Conv(w[2], w[2], 3, 2), Conv(w[3], w[3], 3, 2)
        self.out4, self.out5 = C3(2 * w[2], w[3], n[0], False), C3(2 * w[3], w[4], n[0], False)
        self.heads = nn.ModuleList(
            nn.Conv2d(one, ANCHORS * (CLASSES + 5), 1) for one in (w[2], w[3], w[4])
        )

    def forward(self, image: Tensor) -> list[Tensor]:
        p3 = self.p3(self.stem(image))
        p4 = self.p4(p3)
        top = self.top(self.p5(p4))
        mid = self.mid(self.up4(torch.cat((F.interpolate(top, scale_factor=2.0), p4), 1)))
        n3 = self.up3(torch.cat((F.interpolate(mid, scale_factor=2.0), p3), 1))
        n4 = self.out4(torch.cat((self.down3(n3), mid), 1))
        n5 = self.out5(torch.cat((self.down4(n4), top), 1))
        return [
            head(x).unflatten(1, (ANCHORS, CLASSES + 5)).permute(0, 1, 3, 4, 2).contiguous()
            for head, x in zip(self.heads, (n3, n4, n5), strict=True)
        ]
