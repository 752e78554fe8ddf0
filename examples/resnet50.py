"""ResNet-50 image classifier, 25,557,032 parameters.

Source: He et al. 2015 (arXiv:1512.03385), with the stride on the 3x3 convolution ("v1.5"), as in
torchvision and NVIDIA's examples. `channels_last` is the memory order tensor cores want.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(classes: int = 1000, channels_last: bool = True) -> nn.Module:
    model = ResNet50(classes)
    if channels_last:
        model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return model


def make_batch(
    batch_size: int, image: int = 224, classes: int = 1000, channels_last: bool = True
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


class ResNet50(nn.Module):
    def __init__(self, classes: int):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.stages = nn.Sequential(
            stage(64, 64, blocks=3, stride=1),
            stage(256, 128, blocks=4, stride=2),
            stage(512, 256, blocks=6, stride=2),
            stage(1024, 512, blocks=3, stride=2),
        )
        self.head = nn.Linear(2048, classes)

    def forward(self, images: Tensor) -> Tensor:
        features = self.stages(self.stem(images))
        return self.head(F.adaptive_avg_pool2d(features, 1).flatten(1))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around a shortcut; four times `width` channels out."""

    def __init__(self, channels: int, width: int, stride: int):
        super().__init__()
        out = 4 * width
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.layers(x) + self.shortcut(x), inplace=True)


def stage(channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    rest = [Bottleneck(4 * width, width, stride=1) for _ in range(blocks - 1)]
    return nn.Sequential(Bottleneck(channels, width, stride), *rest)
