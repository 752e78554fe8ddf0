"""3-D U-Net that segments medical volumes; 31,195,904 parameters by default.

Source: Isensee et al. 2021, "nnU-Net" (doi:10.1038/s41592-020-01008-z): the full-resolution
network it configures for BraTS (four MR sequences, 128^3 patches, 32 to 320 features).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    modalities: int = 4,
    classes: int = 4,
    features: tuple[int, ...] = (32, 64, 128, 256, 320, 320),
) -> nn.Module:
    return UNet3d(modalities, classes, features)


def make_batch(
    batch_size: int, modalities: int = 4, classes: int = 4, patch: int = 128
) -> tuple[Tensor, Tensor]:
    volume = (batch_size, patch, patch, patch)
    return torch.randn(batch_size, modalities, patch, patch, patch), torch.randint(classes, volume)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return cross-entropy plus one minus the mean soft Dice overlap."""
    volumes, labels = batch
    logits = model(volumes).float()
    truth = F.one_hot(labels, logits.shape[1]).movedim(-1, 1)
    chance = logits.softmax(dim=1)
    overlap = 2 * (chance * truth).sum((2, 3, 4)) / (chance + truth).sum((2, 3, 4))
    return F.cross_entropy(logits, labels) + 1 - overlap.mean()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.99, nesterov=True, weight_decay=3e-5)


class UNet3d(nn.Module):
    def __init__(self, modalities: int, classes: int, features: tuple[int, ...]):
        super().__init__()
        inputs = (modalities, *features[:-1])
        self.down = nn.ModuleList(
            double_conv(before, after, stride=1 if level == 0 else 2)
            for level, (before, after) in enumerate(zip(inputs, features, strict=True))
        )
        steps = list(zip(features[:0:-1], features[-2::-1], strict=True))
        self.grow = nn.ModuleList(
            nn.ConvTranspose3d(below, here, 2, stride=2, bias=False) for below, here in steps
        )
        self.up = nn.ModuleList(double_conv(2 * here, here) for _, here in steps)
        self.head = nn.Conv3d(features[0], classes, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for down in self.down:
            x = down(x)
            skips.append(x)
        skips.pop()
        for grow, up in zip(self.grow, self.up, strict=True):
            x = up(torch.cat((grow(x), skips.pop()), dim=1))
        return self.head(x)


def double_conv(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, 3, stride=stride, padding=1),
        nn.InstanceNorm3d(outputs, affine=True),
        nn.LeakyReLU(0.01, inplace=True),
        nn.Conv3d(outputs, outputs, 3, padding=1),
        nn.InstanceNorm3d(outputs, affine=True),
        nn.LeakyReLU(0.01, inplace=True),
    )
