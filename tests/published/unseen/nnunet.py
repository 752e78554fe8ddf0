"""U-Net of nnU-Net, in 2 or 3 dimensions.

It is that of nnU-Net version 1 and of DeepLearningExamples' nnU-Net (MONAI's DynUNet).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    dims: int = 3,
    inputs: int = 1,
    classes: int = 3,
    features: tuple[int, ...] = (32, 64, 128, 256, 320, 320),
    deep: bool = True,
    bias: bool = True,
    channels_last: bool = False,
) -> nn.Module:
    """`deep`: all resolutions but the two lowest are scored too (deep supervision)."""
    model = UNet(dims, inputs, classes, tuple(features), deep, bias)
    if channels_last:
        model.to(  # pyright: ignore[reportCallIssue]
            memory_format=torch.channels_last_3d if dims == 3 else torch.channels_last
        )
    return model


def make_batch(
    batch_size: int,
    dims: int = 3,
    inputs: int = 1,
    classes: int = 3,
    patch: tuple[int, ...] = (128, 128, 128),
    channels_last: bool = False,
) -> tuple[Tensor, Tensor]:
    images = torch.randn(batch_size, inputs, *patch)
    if channels_last:
        images = images.contiguous(
            memory_format=torch.channels_last_3d if dims == 3 else torch.channels_last
        )
    return images, torch.randint(classes, (batch_size, *patch))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, labels = batch
    outputs = model(images)
    total = None
    for index, logits in enumerate(outputs):
        step = 2**index
        truth = labels
        if step > 1:
            truth = (
                labels[:, ::step, ::step]
                if labels.dim() == 3
                else labels[:, ::step, ::step, ::step]
            )
        part = dice_and_cross_entropy(logits, truth) * 0.5**index
        total = part if total is None else total + part
    assert total is not None
    return total


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.99, nesterov=True, weight_decay=3e-5)


def dice_and_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    logits = logits.float()
    truth = F.one_hot(labels, logits.shape[1]).movedim(-1, 1)
    chance = logits.softmax(1)
    over = tuple(range(2, logits.dim()))
    overlap = 2 * (chance * truth).sum(over) / (chance + truth).sum(over)
    return F.cross_entropy(logits, labels) + 1 - overlap.mean()


class UNet(nn.Module):
    def __init__(
        self,
        dims: int,
        inputs: int,
        classes: int,
        features: tuple[int, ...],
        deep: bool,
        bias: bool,
    ):
        super().__init__()
        self.conv = nn.Conv3d if dims == 3 else nn.Conv2d
        norm = nn.InstanceNorm3d if dims == 3 else nn.InstanceNorm2d
        turned = nn.ConvTranspose3d if dims == 3 else nn.ConvTranspose2d

        def double(before: int, after: int, stride: int) -> nn.Sequential:
            return nn.Sequential(
                self.conv(before, after, 3, stride, 1, bias=bias),
                norm(after, affine=True),
                nn.LeakyReLU(0.01),
                self.conv(after, after, 3, 1, 1, bias=bias),
                norm(after, affine=True),
                nn.LeakyReLU(0.01),
            )

        self.down = nn.ModuleList(
            double(before, after, 1 if level == 0 else 2)
            for level, (before, after) in enumerate(
                zip((inputs, *features[:-1]), features, strict=True)
            )
        )
        steps = list(zip(features[:0:-1], features[-2::-1], strict=True))
        self.widen = nn.ModuleList(
            turned(below, level, 2, 2, bias=not bias) for below, level in steps
        )
        self.up = nn.ModuleList(double(2 * level, level, 1) for _, level in steps)
        scored = len(features) - 2 if deep else 1
        self.heads = nn.ModuleList(
            self.conv(width, classes, 1, bias=not bias) for width in features[:scored]
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
        levels = []
        for widen, up, skip in zip(self.widen, self.up, kept[-2::-1], strict=True):
            x = up(torch.cat((widen(x), skip), 1))
            levels.append(x)
        levels.reverse()
        return [head(level) for head, level in zip(self.heads, levels, strict=False)]
