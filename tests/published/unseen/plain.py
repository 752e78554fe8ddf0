"""VGG-16 and DenseNet-161 as in torchvision.

The loss is the sum of the scores, as u39kun/deep-learning-benchmark has it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(name: str = "vgg16") -> nn.Module:
    return {"vgg16": vgg16, "densenet161": DenseNet161}[name]()


def make_batch(batch_size: int, image: int = 224) -> tuple[Tensor, Tensor]:
    return torch.rand(batch_size, 3, image, image), torch.randint(1000, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return model(batch[0]).sum()


def vgg16() -> nn.Sequential:
    layers: list[nn.Module] = []
    inputs = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2, 2))
    layers += [nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    layers += [nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers)


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, self.layers(x)), 1)


class DenseNet161(nn.Module):
    def __init__(self, growth: int = 48, width: int = 96):
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        ]
        for stage, count in enumerate((6, 12, 36, 24)):
            for _ in range(count):
                layers.append(DenseLayer(width, growth))
                width += growth
            layers.append(nn.BatchNorm2d(width))
            if stage < 3:
                layers += [
                    nn.ReLU(inplace=True),
                    nn.Conv2d(width, width // 2, 1, bias=False),
                    nn.AvgPool2d(2, 2),
                ]
                width //= 2
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.features(x), inplace=True)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
