"""Jasper 10x5, dense residuals, of NVIDIA's DeepLearningExamples.

PyTorch/SpeechRecognition/Jasper:
64 mel features at 100 frames a second, convolutions that mask padding, CTC over 29 symbols. All
utterances have `frames` frames and 181 characters here (LibriSpeech's mean, padding in buckets).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SYMBOLS, FEATURES, CHARACTERS = 29, 64, 181
PAIRS = ((256, 11, 0.2), (384, 13, 0.2), (512, 17, 0.2), (640, 21, 0.3), (768, 25, 0.3))


def build_model() -> nn.Module:
    return Jasper()


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
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1):
        super().__init__()
        self.stride = stride
        padding = kernel // 2 * dilation
        self.conv = nn.Conv1d(inputs, outputs, kernel, stride, padding, dilation, bias=False)
        self.norm = nn.BatchNorm1d(outputs, eps=1e-3)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(x.shape[2], dtype=lengths.dtype, device=lengths.device)
        mask = places.expand(len(lengths), x.shape[2]) >= lengths.unsqueeze(1)
        x = x.masked_fill(mask.unsqueeze(1), 0)
        return self.norm(self.conv(x)), torch.floor((lengths - 1) / self.stride).long() + 1


class Block(nn.Module):
    def __init__(self, panes: list[int], width: int, kernel: int, dropout: float):
        super().__init__()
        sizes = [panes[-1], *[width] * 5]
        self.convs = nn.ModuleList(
            Masked(a, b, kernel) for a, b in zip(sizes, sizes[1:], strict=False)
        )
        self.residuals = nn.ModuleList(Masked(pane, width, 1) for pane in panes)
        self.ends = nn.ModuleList(nn.Sequential(nn.ReLU(), nn.Dropout(dropout)) for _ in range(5))

    def forward(self, xs: list[Tensor], lengths: Tensor) -> tuple[list[Tensor], Tensor]:
        x, ends = xs[-1], lengths
        for number, conv in enumerate(self.convs):
            x, ends = conv(x, ends)
            if number < 4:
                x = self.ends[number](x)
        for pane, residual in zip(xs, self.residuals, strict=True):
            x = x + residual(pane, lengths)[0]
        return [*xs, self.ends[4](x)], ends


class Jasper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Masked(FEATURES, 256, 11, stride=2)
        panes, width = [], 256
        self.blocks = nn.ModuleList()
        for wide, kernel, dropout in PAIRS:
            for _ in range(2):
                panes.append(width)
                self.blocks.append(Block(list(panes), wide, kernel, dropout))
                width = wide
        self.wide, self.last = Masked(768, 896, 29, dilation=2), Masked(896, 1024, 1)
        self.head = nn.Conv1d(1024, SYMBOLS, 1)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x, lengths = self.first(x, lengths)
        xs = [F.dropout(F.relu(x), 0.2, self.training)]
        for block in self.blocks:
            xs, lengths = block(xs, lengths)
        x, lengths = self.wide(xs[-1], lengths)
        x, lengths = self.last(F.dropout(F.relu(x), 0.4, self.training), lengths)
        x = self.head(F.dropout(F.relu(x), 0.4, self.training)).transpose(1, 2)
        return F.log_softmax(x, dim=2), lengths
