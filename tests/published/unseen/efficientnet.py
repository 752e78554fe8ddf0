"""EfficientNet b0 and b4 of DeepLearningExamples.

Source: PyTorch/Classification/ConvNets, efficientnet.py.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# kernel, stride, repeats, expansion, channels
STAGES = (
    (3, 1, 1, 1, 16),
    (3, 2, 2, 6, 24),
    (5, 2, 2, 6, 40),
    (3, 2, 3, 6, 80),
    (5, 1, 3, 6, 112),
    (5, 2, 4, 6, 192),
    (3, 1, 1, 6, 320),
)


def build_model(
    width: float = 1.0, depth: float = 1.0, dropout: float = 0.2, channels_last: bool = False
) -> nn.Module:
    model = EfficientNet(width, depth, dropout)
    if channels_last:
        model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return model


def make_batch(
    batch_size: int, image: int = 224, channels_last: bool = False
) -> tuple[Tensor, Tensor]:
    images = torch.randn(batch_size, 3, image, image)
    if channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    return images, torch.randint(1000, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, labels = batch
    return F.cross_entropy(model(images), labels, label_smoothing=0.1)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, lr=0.08, alpha=0.9, eps=0.01, momentum=0.9)


def scaled(channels: int, width: float) -> int:
    wanted = channels * width
    made = max(8, int(wanted + 4) // 8 * 8)
    return made + 8 if made < 0.9 * wanted else made


def unit(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, act: bool = True
):
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01),
    ]
    return nn.Sequential(*layers, nn.SiLU()) if act else nn.Sequential(*layers)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int):
        super().__init__()
        inner = inputs * expansion
        self.expand = unit(inputs, inner, 1) if expansion > 1 else nn.Identity()
        self.depthwise = unit(inner, inner, kernel, stride, groups=inner)
        self.down = nn.Linear(inner, max(1, inputs // 4))
        self.up = nn.Linear(max(1, inputs // 4), inner)
        self.project = unit(inner, outputs, 1, act=False)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        inner = self.depthwise(self.expand(x))
        shares = self.up(F.silu(self.down(inner.flatten(2).mean(2)))).sigmoid()
        out = self.project(inner * shares[:, :, None, None])
        return x + out if self.residual else out


class EfficientNet(nn.Module):
    def __init__(self, width: float, depth: float, dropout: float):
        super().__init__()
        inputs = scaled(32, width)
        self.stem = unit(3, inputs, 3, stride=2)
        blocks = []
        for kernel, stride, repeats, expansion, channels in STAGES:
            outputs = scaled(channels, width)
            for index in range(math.ceil(repeats * depth)):
                blocks.append(
                    Block(inputs, outputs, kernel, stride if index == 0 else 1, expansion)
                )
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.features = unit(inputs, scaled(1280, width), 1)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(scaled(1280, width), 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(self.blocks(self.stem(x)))
        return self.head(self.dropout(F.adaptive_avg_pool2d(x, 1).flatten(1)))
