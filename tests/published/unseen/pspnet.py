"""PSPNet, DeepLabV3 or FCN of MMSegmentation.

Each is a ResNetV1c at an eighth of the resolution, a head and an auxiliary head.

Source: open-mmlab/mmsegmentation, configs/_base_/models/{pspnet,deeplabv3,fcn}_r50-d8.py, with the
19 classes of Cityscapes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def build_model(depth: int = 50, head: str = "psp", classes: int = 19) -> nn.Module:
    return Segmenter(depth, head, classes)


def make_batch(
    batch_size: int, height: int = 512, breadth: int = 1024, classes: int = 19
) -> tuple[Tensor, Tensor]:
    images = torch.randn(batch_size, 3, height, breadth)
    return images, torch.randint(classes, (batch_size, height, breadth))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, labels = batch
    main, aside = model(images)
    return F.cross_entropy(main, labels) + 0.4 * F.cross_entropy(aside, labels)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=5e-4)


def unit(
    inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1
) -> nn.Sequential:
    padding = dilation * (kernel // 2)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int, dilation: int):
        super().__init__()
        self.layers = nn.Sequential(
            unit(inputs, width, 1),
            unit(width, width, 3, stride, dilation),
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
        )
        self.shortcut = None
        if stride > 1 or inputs != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.shortcut is None else self.shortcut(x)
        return F.relu(self.layers(x) + kept, inplace=True)


def resized(x: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(x, size=size, mode="bilinear", align_corners=False)


class PyramidHead(nn.Module):
    def __init__(self, classes: int):
        super().__init__()
        self.scales = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(scale), unit(2048, 512, 1)) for scale in (1, 2, 3, 6)
        )
        self.join = unit(2048 + 4 * 512, 512, 3)
        self.dropout = nn.Dropout2d(0.1)
        self.scores = nn.Conv2d(512, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        size = (x.shape[2], x.shape[3])
        parts = [x, *(resized(scale(x), size) for scale in self.scales)]
        return self.scores(self.dropout(self.join(torch.cat(parts, 1))))


class AtrousHead(nn.Module):
    def __init__(self, classes: int):
        super().__init__()
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), unit(2048, 512, 1))
        self.branches = nn.ModuleList(
            unit(2048, 512, 1 if rate == 1 else 3, dilation=rate) for rate in (1, 12, 24, 36)
        )
        self.join = unit(5 * 512, 512, 3)
        self.dropout = nn.Dropout2d(0.1)
        self.scores = nn.Conv2d(512, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        size = (x.shape[2], x.shape[3])
        parts = [resized(self.pool(x), size), *(branch(x) for branch in self.branches)]
        return self.scores(self.dropout(self.join(torch.cat(parts, 1))))


class PlainHead(nn.Module):
    """FCN's head: `convs` convolutions, with `join` one more.

    That last one takes the input beside the output of the others; only the main head has it.
    """

    def __init__(self, inputs: int, width: int, classes: int, convs: int, join: bool):
        super().__init__()
        self.convs = nn.Sequential(
            unit(inputs, width, 3), *(unit(width, width, 3) for _ in range(convs - 1))
        )
        self.join = unit(inputs + width, width, 3) if join else None
        self.dropout = nn.Dropout2d(0.1)
        self.scores = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.convs(x)
        if self.join is not None:
            inner = self.join(torch.cat((x, inner), 1))
        return self.scores(self.dropout(inner))


class Segmenter(nn.Module):
    def __init__(self, depth: int, head: str, classes: int):
        super().__init__()
        self.stem = nn.Sequential(
            unit(3, 32, 3, 2), unit(32, 32, 3), unit(32, 64, 3), nn.MaxPool2d(3, 2, 1)
        )
        inputs, stages = 64, []
        for stage, (count, stride, dilation) in enumerate(
            zip(BLOCKS[depth], (1, 2, 1, 1), (1, 1, 2, 4), strict=True)
        ):
            width, blocks = 64 * 2**stage, []
            for index in range(count):
                first = dilation // 2 if dilation > 1 and index == 0 else dilation
                blocks.append(Bottleneck(inputs, width, stride if index == 0 else 1, max(1, first)))
                inputs = 4 * width
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.ModuleList(stages)
        self.head = {
            "psp": lambda: PyramidHead(classes),
            "aspp": lambda: AtrousHead(classes),
            "fcn": lambda: PlainHead(2048, 512, classes, 2, join=True),
        }[head]()
        self.aside = PlainHead(1024, 256, classes, 1, join=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        size = (x.shape[2], x.shape[3])
        x = self.stem(x)
        for stage in self.stages[:3]:
            x = stage(x)
        aside = self.aside(x)
        main = self.head(self.stages[3](x))
        return resized(main, size), resized(aside, size)
