"""MobileNetV2 as torchvision's: 17 inverted residual blocks; 3,504,872 parameters."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1))
STAGES += ((6, 160, 3, 2), (6, 320, 1, 1))
"""How many times a block is wider inside, its channels, how many blocks, the first one's stride."""


def build_model(classes: int = 1000) -> nn.Module:
    return MobileNet(classes)


def make_batch(batch_size: int, image: int = 224, classes: int = 1000) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 3, image, image), torch.randint(classes, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.045, momentum=0.9, weight_decay=4e-5)


def convolution(width: int, out: int, kernel: int, stride: int, groups: int = 1) -> nn.Module:
    conv = nn.Conv2d(width, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU6(inplace=True))


class Block(nn.Module):
    def __init__(self, width: int, out: int, stride: int, wider: int):
        super().__init__()
        inner = width * wider
        self.is_residual = stride == 1 and width == out
        layers = [convolution(width, inner, 1, 1)] if wider > 1 else []
        layers += [convolution(inner, inner, 3, stride, inner)]
        self.layers = nn.Sequential(
            *layers, nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.is_residual else self.layers(x)


class MobileNet(nn.Module):
    def __init__(self, classes: int):
        super().__init__()
        layers, width = [convolution(3, 32, 3, 2)], 32
        for wider, out, count, stride in STAGES:
            for index in range(count):
                layers.append(Block(width, out, stride if index == 0 else 1, wider))
                width = out
        self.features = nn.Sequential(*layers, convolution(width, 1280, 1, 1))
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images).mean((2, 3)))
