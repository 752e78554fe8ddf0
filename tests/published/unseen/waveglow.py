"""WaveGlow of DeepLearningExamples: mel spectra to audio.

Source: PyTorch/SpeechSynthesis/Tacotron2, waveglow/model.py.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MELS, FLOWS, GROUP, LAYERS, WIDTH = 80, 12, 8, 8, 512


def build_model() -> nn.Module:
    return WaveGlow()


def make_batch(batch_size: int, segment: int = 8000) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, MELS, segment // 256 + 1), torch.randn(batch_size, segment)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    z, scales, volumes = model(*batch)
    total = (z * z).sum() / 2
    for scale, volume in zip(scales, volumes, strict=True):
        total = total - scale.sum() - volume
    return total / z.numel()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-4)


class Normed(nn.Module):
    """A convolution whose weight is a direction times a length (weight_norm)."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, dilation: int = 1):
        super().__init__()
        made = nn.Conv1d(inputs, outputs, kernel)
        self.direction = nn.Parameter(made.weight.detach().clone())
        self.length = nn.Parameter(torch.ones(outputs, 1, 1))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.dilation = dilation
        self.padding = (kernel - 1) * dilation // 2

    def forward(self, x: Tensor) -> Tensor:
        weight = torch._weight_norm(  # pyright: ignore[reportPrivateImportUsage]
            self.direction, self.length, 0
        )
        return F.conv1d(x, weight, self.bias, padding=self.padding, dilation=self.dilation)


class Wave(nn.Module):
    def __init__(self, inputs: int):
        super().__init__()
        self.start = Normed(inputs, WIDTH)
        self.end = nn.Conv1d(WIDTH, 2 * inputs, 1)
        self.inner = nn.ModuleList(
            Normed(WIDTH, 2 * WIDTH, 3, dilation=2**index) for index in range(LAYERS)
        )
        self.spectrum = nn.ModuleList(Normed(MELS * GROUP, 2 * WIDTH) for _ in range(LAYERS))
        self.skip = nn.ModuleList(
            Normed(WIDTH, 2 * WIDTH if index < LAYERS - 1 else WIDTH) for index in range(LAYERS)
        )

    def forward(self, audio: Tensor, spectrum: Tensor) -> Tensor:
        audio = self.start(audio)
        output = 0
        layers = zip(self.inner, self.spectrum, self.skip, strict=True)
        for index, (inner, conditioned, skip) in enumerate(layers):
            both = inner(audio) + conditioned(spectrum)
            gated = both[:, :WIDTH].tanh() * both[:, WIDTH:].sigmoid()
            made = skip(gated)
            if index < LAYERS - 1:
                audio = made[:, :WIDTH] + audio
                made = made[:, WIDTH:]
            output = output + made
        return self.end(output)


class WaveGlow(nn.Module):
    def __init__(self):
        super().__init__()
        self.upsample = nn.ConvTranspose1d(MELS, MELS, 1024, stride=256)
        mixers, waves, left = [], [], GROUP
        for flow in range(FLOWS):
            if flow % 4 == 0 and flow > 0:
                left -= 2
            mixers.append(nn.Conv1d(left, left, 1, bias=False))
            waves.append(Wave(left // 2))
        self.mixers, self.waves = nn.ModuleList(mixers), nn.ModuleList(waves)

    def forward(self, mels: Tensor, audio: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        spectrum = self.upsample(mels)[:, :, : audio.shape[1]]
        spectrum = spectrum.unfold(2, GROUP, GROUP).permute(0, 2, 1, 3).flatten(2).permute(0, 2, 1)
        audio = audio.unfold(1, GROUP, GROUP).permute(0, 2, 1)
        early, scales, volumes = [], [], []
        for flow, (mixer, wave) in enumerate(zip(self.mixers, self.waves, strict=True)):
            if flow % 4 == 0 and flow > 0:
                early.append(audio[:, :2])
                audio = audio[:, 2:]
            matrix = mixer.weight.squeeze(2).float()  # pyright: ignore[reportCallIssue]
            volumes.append(len(audio) * audio.shape[2] * torch.logdet(matrix))
            audio = mixer(audio)
            half = audio.shape[1] // 2
            first, second = audio[:, :half], audio[:, half:]
            shift, scale = wave(first, spectrum).split(half, 1)
            scales.append(scale)
            audio = torch.cat((first, scale.exp() * second + shift), 1)
        early.append(audio)
        return torch.cat(early, 1), scales, volumes
