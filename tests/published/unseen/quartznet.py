"""QuartzNet 15x5 of NVIDIA's DeepLearningExamples (PyTorch/SpeechRecognition/QuartzNet).

Depthwise and pointwise convolutions over time that mask padding, CTC over 29 symbols.

All utterances have `frames` frames and 181 characters here (LibriSpeech's mean, padded in
buckets).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SYMBOLS, FEATURES, CHARACTERS = 29, 64, 181
STAGES = ((256, 33), (256, 39), (512, 51), (512, 63), (512, 75))


def build_model() -> nn.Module:
    return QuartzNet()


def make_batch(batch_size: int, frames: int = 1280) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    sounds = torch.randn(batch_size, FEATURES, frames)
    texts = torch.randint(SYMBOLS - 1, (batch_size, CHARACTERS))
    lengths = torch.full((batch_size,), frames, dtype=torch.long)
    return sounds, lengths, texts, torch.full((batch_size,), CHARACTERS, dtype=torch.long)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    sounds, lengths, texts, counts = batch
    logs, ends = model(sounds, lengths)
    losses = F.ctc_loss(
        logs.transpose(1, 0), texts, ends, counts, blank=SYMBOLS - 1, reduction="none"
    )
    return losses.mean()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


class Masked(nn.Module):
    """A convolution after which padding stays zero; norm and activation are the caller's."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
    ):
        super().__init__()
        self.stride = stride
        padding = kernel // 2 * dilation
        self.conv = nn.Conv1d(
            inputs, outputs, kernel, stride, padding, dilation, groups=groups, bias=False
        )

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(x.shape[2], dtype=lengths.dtype, device=lengths.device)
        mask = places.expand(len(lengths), x.shape[2]) >= lengths.unsqueeze(1)
        x = x.masked_fill(mask.unsqueeze(1), 0)
        ends = torch.div(lengths - 1, self.stride, rounding_mode="trunc") + 1
        return self.conv(x), ends


class Separable(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1):
        super().__init__()
        self.depth = Masked(inputs, inputs, kernel, stride, dilation, groups=inputs)
        self.point = Masked(inputs, outputs, 1)
        self.norm = nn.BatchNorm1d(outputs, eps=1e-3)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x, lengths = self.depth(x, lengths)
        x, lengths = self.point(x, lengths)
        return self.norm(x), lengths


class Block(nn.Module):
    def __init__(self, inputs: int, width: int, kernel: int):
        super().__init__()
        self.layers = nn.ModuleList(
            Separable(inputs if number == 0 else width, width, kernel) for number in range(5)
        )
        self.side, self.side_norm = Masked(inputs, width, 1), nn.BatchNorm1d(width, eps=1e-3)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        side = self.side_norm(self.side(x, lengths)[0])
        for number, layer in enumerate(self.layers):
            x, lengths = layer(x if number == 0 else F.relu(x), lengths)
        return F.relu(x + side), lengths


class QuartzNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Separable(FEATURES, 256, 33, stride=2)
        width = 256
        self.blocks = nn.ModuleList()
        for wide, kernel in STAGES:
            for _ in range(3):
                self.blocks.append(Block(width, wide, kernel))
                width = wide
        self.wide = Separable(512, 512, 87, dilation=2)
        self.last, self.last_norm = Masked(512, 1024, 1), nn.BatchNorm1d(1024, eps=1e-3)
        self.head = nn.Conv1d(1024, SYMBOLS, 1)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x, lengths = self.first(x, lengths)
        x = F.relu(x)
        for block in self.blocks:
            x, lengths = block(x, lengths)
        x, lengths = self.wide(x, lengths)
        x, lengths = self.last(F.relu(x), lengths)
        x = self.head(F.relu(self.last_norm(x))).transpose(1, 2)
        return F.log_softmax(x, dim=2), lengths
