"""ResNet-9 of davidcpage/cifar10-fast (dawn.py): 6,573,120 parameters, images of 32 pixels."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model() -> nn.Module:
    return ResNet9()


def make_batch(batch_size: int, image: int = 32) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 3, image, image), torch.randint(10, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1], reduction="sum")


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.256, nesterov=True)


def unit(inputs: int, outputs: int) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class ResNet9(nn.Module):
    def __init__(self):
        super().__init__()
        self.units = nn.ModuleList(
            unit(*one) for one in ((3, 64), (64, 128), (128, 256), (256, 512))
        )
        self.inner = nn.ModuleList(
            nn.Sequential(unit(width, width), unit(width, width)) for width in (128, 512)
        )
        self.line = nn.Linear(512, 10, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.units[1](self.units[0](x)), 2)
        x = x + self.inner[0](x)
        x = F.max_pool2d(self.units[2](x), 2)
        x = F.max_pool2d(self.units[3](x), 2)
        x = x + self.inner[1](x)
        return self.line(F.max_pool2d(x, 4).flatten(1)) * 0.125
