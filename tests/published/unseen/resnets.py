"""Residual image classifiers as torchvision's, with options of DeepLearningExamples and FFCV.

Depths 18 and 34 have basic blocks; 50, 101 and 152 have bottlenecks with the stride in the 3 x 3
convolution. `groups` and `width` make a ResNeXt, `squeeze` adds squeeze-and-excitation, and `blur`
adds FFCV's BlurPool before each strided convolution of 16 or more channels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}


def build_model(
    depth: int = 50,
    groups: int = 1,
    width: int = 64,
    squeeze: bool = False,
    blur: bool = False,
    classes: int = 1000,
    channels_last: bool = False,
) -> nn.Module:
    model = ResNet(depth, groups, width, squeeze, blur, classes)
    if channels_last:
        model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return model


def make_batch(
    batch_size: int, image: int = 224, classes: int = 1000, channels_last: bool = False
) -> tuple[Tensor, Tensor]:
    images = torch.randn(batch_size, 3, image, image)
    if channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    return images, torch.randint(classes, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, labels = batch
    return F.cross_entropy(model(images), labels)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)


class BlurConv(nn.Module):
    kernel: Tensor

    def __init__(self, conv: nn.Conv2d):
        super().__init__()
        kernel = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
        self.conv = conv
        self.register_buffer("kernel", kernel.repeat(conv.in_channels, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.conv2d(x, self.kernel, padding=1, groups=self.conv.in_channels))


def conv(inputs: int, outputs: int, kernel: int, stride: int, groups: int, blur: bool) -> nn.Module:
    made = nn.Conv2d(
        inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False
    )
    return BlurConv(made) if blur and stride > 1 and inputs >= 16 else made


class Squeeze(nn.Module):
    def __init__(self, channels: int, inner: int):
        super().__init__()
        self.down = nn.Linear(channels, inner)
        self.up = nn.Linear(inner, channels)

    def forward(self, x: Tensor) -> Tensor:
        shares = x.flatten(2).mean(2)
        return x * self.up(F.relu(self.down(shares))).sigmoid()[:, :, None, None]


class Block(nn.Module):
    def __init__(
        self,
        inputs: int,
        planes: int,
        stride: int,
        bottleneck: bool,
        groups: int,
        width: int,
        squeeze: bool,
        blur: bool,
    ):
        super().__init__()
        outputs = planes * (4 if bottleneck else 1)
        inner = planes * width // 64 * groups
        if bottleneck:
            self.body = nn.Sequential(
                conv(inputs, inner, 1, 1, 1, blur),
                nn.BatchNorm2d(inner),
                nn.ReLU(inplace=True),
                conv(inner, inner, 3, stride, groups, blur),
                nn.BatchNorm2d(inner),
                nn.ReLU(inplace=True),
                conv(inner, outputs, 1, 1, 1, blur),
                nn.BatchNorm2d(outputs),
            )
        else:
            self.body = nn.Sequential(
                conv(inputs, planes, 3, stride, 1, blur),
                nn.BatchNorm2d(planes),
                nn.ReLU(inplace=True),
                conv(planes, planes, 3, 1, 1, blur),
                nn.BatchNorm2d(planes),
            )
        self.squeeze = Squeeze(outputs, outputs // 16) if squeeze else None
        self.shortcut = None
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                conv(inputs, outputs, 1, stride, 1, blur), nn.BatchNorm2d(outputs)
            )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.shortcut is None else self.shortcut(x)
        x = self.body(x)
        if self.squeeze is not None:
            x = self.squeeze(x)
        return self.relu(x + kept)


class ResNet(nn.Module):
    def __init__(
        self, depth: int, groups: int, width: int, squeeze: bool, blur: bool, classes: int
    ):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        bottleneck = depth >= 50
        inputs, blocks = 64, []
        for stage, count in enumerate(BLOCKS[depth]):
            planes = 64 * 2**stage
            for index in range(count):
                stride = 2 if index == 0 and stage > 0 else 1
                blocks.append(
                    Block(inputs, planes, stride, bottleneck, groups, width, squeeze, blur)
                )
                inputs = planes * (4 if bottleneck else 1)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
