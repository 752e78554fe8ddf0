"""Video classifiers of MMAction2 0.19, by default for the 400 classes of Kinetics-400.

`kind`: "tsn" (ResNet-50 on each frame, scores averaged), "tsm" (the same with an eighth of the
channels shifted along time before each block), "i3d" and "slowonly" (ResNet-50 with 3 x 1 x 1
filters in some blocks), "r2plus1d" (ResNet-34 of filters over space and then over time).

Source: open-mmlab/mmaction2@c2725e7, configs/_base_/models and mmaction/models/backbones.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

INFLATED = {
    "i3d": ((1, 1, 1), (1, 0, 1, 0), (1, 0, 1, 0, 1, 0), (0, 1, 0)),
    "slowonly": ((0,) * 3, (0,) * 4, (1,) * 6, (1,) * 3),
}
BLOCKS = (3, 4, 6, 3)


def build_model(kind: str = "tsn", frames: int = 3, classes: int = 400) -> nn.Module:
    if kind in ("tsn", "tsm"):
        return FrameNet(kind == "tsm", frames, classes)
    if kind == "r2plus1d":
        return SplitNet(classes)
    return VolumeNet(kind, classes)


def make_batch(
    batch_size: int, kind: str = "tsn", frames: int = 3, classes: int = 400, image: int = 224
) -> tuple[Tensor, Tensor]:
    shape = (frames, 3) if kind in ("tsn", "tsm") else (3, frames)
    return torch.randn(batch_size, *shape, image, image), torch.randint(classes, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4)


def shifted(x: Tensor, frames: int) -> Tensor:
    """Return x with an eighth of its channels moved a frame ahead, and an eighth a frame back."""
    count, channels, height, breadth = x.shape
    x = x.view(-1, frames, channels, height * breadth)
    fold = channels // 8
    left, middle, rest = x[:, :, :fold], x[:, :, fold : 2 * fold], x[:, :, 2 * fold :]
    zeros = left - left
    left = torch.cat((left[:, 1:], zeros[:, :1]), dim=1)
    middle = torch.cat((zeros[:, :1], middle[:, :-1]), dim=1)
    return torch.cat((left, middle, rest), dim=2).view(count, channels, height, breadth)


class Frame(nn.Module):
    def __init__(self, inputs: int, planes: int, stride: int, frames: int):
        super().__init__()
        self.frames = frames
        self.body = nn.Sequential(
            nn.Conv2d(inputs, planes, 1, bias=False),
            nn.BatchNorm2d(planes),
            nn.ReLU(inplace=True),
            nn.Conv2d(planes, planes, 3, stride, 1, bias=False),
            nn.BatchNorm2d(planes),
            nn.ReLU(inplace=True),
            nn.Conv2d(planes, 4 * planes, 1, bias=False),
            nn.BatchNorm2d(4 * planes),
        )
        self.shortcut = None
        if stride > 1 or inputs != 4 * planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, 4 * planes, 1, stride, bias=False), nn.BatchNorm2d(4 * planes)
            )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.shortcut is None else self.shortcut(x)
        if self.frames:
            x = shifted(x, self.frames)
        return self.relu(self.body(x) + kept)


class FrameNet(nn.Module):
    def __init__(self, shifts: bool, frames: int, classes: int):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        inputs, blocks = 64, []
        for stage, count in enumerate(BLOCKS):
            for index in range(count):
                stride = 2 if stage and not index else 1
                blocks.append(Frame(inputs, 64 * 2**stage, stride, frames if shifts else 0))
                inputs = 256 * 2**stage
        self.blocks = nn.Sequential(*blocks)
        self.shifts = shifts
        self.dropout = nn.Dropout(0.5 if shifts else 0.4)
        self.head = nn.Linear(inputs, classes)

    def forward(self, videos: Tensor) -> Tensor:
        count, frames = videos.shape[:2]
        x = self.blocks(self.stem(videos.flatten(0, 1)))
        x = F.adaptive_avg_pool2d(x, 1)
        if self.shifts:
            return self.head(self.dropout(x.flatten(1))).view(count, frames, -1).mean(1)
        x = x.view(count, frames, *x.shape[1:]).mean(1)
        return self.head(self.dropout(x).flatten(1))


class Volume(nn.Module):
    def __init__(self, inputs: int, planes: int, stride: int, inflated: bool):
        super().__init__()
        first = ((3, 1, 1), (1, 0, 0)) if inflated else ((1, 1, 1), (0, 0, 0))
        self.body = nn.Sequential(
            nn.Conv3d(inputs, planes, first[0], padding=first[1], bias=False),
            nn.BatchNorm3d(planes),
            nn.ReLU(inplace=True),
            nn.Conv3d(planes, planes, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False),
            nn.BatchNorm3d(planes),
            nn.ReLU(inplace=True),
            nn.Conv3d(planes, 4 * planes, 1, bias=False),
            nn.BatchNorm3d(4 * planes),
        )
        self.shortcut = None
        if stride > 1 or inputs != 4 * planes:
            self.shortcut = nn.Sequential(
                nn.Conv3d(inputs, 4 * planes, 1, (1, stride, stride), bias=False),
                nn.BatchNorm3d(4 * planes),
            )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.shortcut is None else self.shortcut(x)
        return self.relu(self.body(x) + kept)


class VolumeNet(nn.Module):
    def __init__(self, kind: str, classes: int):
        super().__init__()
        dense = kind == "i3d"
        kernel, step = ((5, 7, 7), 2) if dense else ((1, 7, 7), 1)
        self.stem = nn.Sequential(
            nn.Conv3d(3, 64, kernel, (step, 2, 2), (kernel[0] // 2, 3, 3), bias=False),
            nn.BatchNorm3d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool3d((1, 3, 3), (step, 2, 2), (0, 1, 1)),
        )
        inputs, stages = 64, []
        for stage, marks in enumerate(INFLATED[kind]):
            blocks: list[nn.Module] = []
            for index, mark in enumerate(marks):
                stride = 2 if stage and not index else 1
                blocks.append(Volume(inputs, 64 * 2**stage, stride, bool(mark)))
                inputs = 256 * 2**stage
            if dense and not stage:
                blocks.append(nn.MaxPool3d((2, 1, 1), (2, 1, 1)))
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(inputs, classes)

    def forward(self, videos: Tensor) -> Tensor:
        x = self.stages(self.stem(videos))
        return self.head(self.dropout(F.adaptive_avg_pool3d(x, 1)).flatten(1))


def split_conv(
    inputs: int, outputs: int, kernel: int, depth: int, stride: int, step: int
) -> nn.Sequential:
    """A filter over space, then one over time, with as many channels between as in Conv2plus1d."""
    between = int(3 * inputs * outputs * kernel * kernel / (inputs * kernel * kernel + 3 * outputs))
    pad = kernel // 2
    return nn.Sequential(
        nn.Conv3d(
            inputs, between, (1, kernel, kernel), (1, stride, stride), (0, pad, pad), bias=False
        ),
        nn.BatchNorm3d(between),
        nn.ReLU(inplace=True),
        nn.Conv3d(between, outputs, (depth, 1, 1), (step, 1, 1), (depth // 2, 0, 0), bias=False),
    )


class Split(nn.Module):
    def __init__(self, inputs: int, planes: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            split_conv(inputs, planes, 3, 3, stride, stride),
            nn.BatchNorm3d(planes, eps=1e-3),
            nn.ReLU(inplace=True),
            split_conv(planes, planes, 3, 3, 1, 1),
            nn.BatchNorm3d(planes, eps=1e-3),
        )
        self.shortcut = None
        if stride > 1:
            self.shortcut = nn.Sequential(
                split_conv(inputs, planes, 1, 1, stride, stride), nn.BatchNorm3d(planes, eps=1e-3)
            )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.shortcut is None else self.shortcut(x)
        return self.relu(self.body(x) + kept)


class SplitNet(nn.Module):
    def __init__(self, classes: int):
        super().__init__()
        self.stem = nn.Sequential(
            split_conv(3, 64, 7, 3, 2, 1),
            nn.BatchNorm3d(64, eps=1e-3),
            nn.ReLU(inplace=True),
            nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1)),
        )
        inputs, blocks = 64, []
        for stage, count in enumerate(BLOCKS):
            for index in range(count):
                blocks.append(Split(inputs, 64 * 2**stage, 2 if stage and not index else 1))
                inputs = 64 * 2**stage
        self.blocks = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(inputs, classes)

    def forward(self, videos: Tensor) -> Tensor:
        x = self.blocks(self.stem(videos))
        return self.head(self.dropout(F.adaptive_avg_pool3d(x, 1)).flatten(1))
