"""SSD300 with a ResNet-50 of DeepLearningExamples (PyTorch/Detection/SSD, ssd/model.py)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpuplan.examples import resnet50

LABELS = 81
DEFAULTS = (4, 6, 6, 6, 4, 4)
CHANNELS = (1024, 512, 512, 256, 256, 256)
INNER = (256, 256, 128, 128, 128)
BOXES = 8732


def build_model(channels_last: bool = False) -> nn.Module:
    model = SSD300()
    if channels_last:
        model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return model


def make_batch(batch_size: int, channels_last: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    images = torch.randn(batch_size, 3, 300, 300)
    if channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    return images, torch.randn(batch_size, 4, BOXES), torch.randint(LABELS, (batch_size, BOXES))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Return the smooth L1 of positive boxes plus cross-entropy with hard negatives.

    There are three hard negatives to a positive box.
    """
    images, boxes, labels = batch
    places, scores = model(images)
    places, scores = places.float(), scores.float()
    positive = labels > 0
    count = positive.sum(1)
    place_loss = (F.smooth_l1_loss(places, boxes, reduction="none").sum(1) * positive).sum(1)
    losses = F.cross_entropy(scores, labels, reduction="none")
    negatives = losses.detach().masked_fill(positive, 0)
    rank = negatives.argsort(1, descending=True).argsort(1)
    hard = rank < (3 * count).clamp(max=BOXES)[:, None]
    score_loss = (losses * (positive.float() + hard.float())).sum(1)
    return ((place_loss + score_loss) / count.clamp(min=1)).mean()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=2.6e-3, momentum=0.9, weight_decay=5e-4)


class SSD300(nn.Module):
    def __init__(self):
        super().__init__()
        backbone = resnet50.ResNet50(1000)
        self.features = nn.Sequential(backbone.stem, *list(backbone.stages)[:3])
        first: Any = self.features[-1][0]  # pyright: ignore[reportIndexIssue]
        first.layers[3].stride = first.shortcut[0].stride = (1, 1)
        extra = []
        for index, inner in enumerate(INNER):
            stride, padding = (2, 1) if index < 3 else (1, 0)
            extra.append(
                nn.Sequential(
                    nn.Conv2d(CHANNELS[index], inner, 1, bias=False),
                    nn.BatchNorm2d(inner),
                    nn.ReLU(inplace=True),
                    nn.Conv2d(inner, CHANNELS[index + 1], 3, stride, padding, bias=False),
                    nn.BatchNorm2d(CHANNELS[index + 1]),
                    nn.ReLU(inplace=True),
                )
            )
        self.extra = nn.ModuleList(extra)
        self.places = nn.ModuleList(
            nn.Conv2d(width, count * 4, 3, padding=1)
            for count, width in zip(DEFAULTS, CHANNELS, strict=True)
        )
        self.scores = nn.ModuleList(
            nn.Conv2d(width, count * LABELS, 3, padding=1)
            for count, width in zip(DEFAULTS, CHANNELS, strict=True)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.features(x)
        maps = [x]
        for layer in self.extra:
            x = layer(x)
            maps.append(x)
        places = [head(x).reshape(len(x), 4, -1) for head, x in zip(self.places, maps, strict=True)]
        scores = [
            head(x).reshape(len(x), LABELS, -1) for head, x in zip(self.scores, maps, strict=True)
        ]
        return torch.cat(places, 2).contiguous(), torch.cat(scores, 2).contiguous()
