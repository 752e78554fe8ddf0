"""HiFi-GAN of NVIDIA's DeepLearningExamples (PyTorch/SpeechSynthesis/HiFiGAN): one step of
the discriminators and one of the generator, segments of 8,192 samples (32 frames of 80 mels).

Both losses are summed here; the generator's part sees the discriminators' weights detached, as the
program freezes them. Two optimizers there are one here. `plain_groups`: grouped convolutions run in
fp32 whatever is around them (--no_amp_grouped_conv).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import spectral_norm, weight_norm

SEGMENT, HOP, MELS, WINDOW = 8192, 256, 80, 1024


def build_model(plain_groups: bool = False) -> nn.Module:
    return Pair(plain_groups)


def make_batch(batch_size: int) -> tuple[Tensor, Tensor, Tensor]:
    mels = torch.randn(batch_size, MELS, SEGMENT // HOP)
    return mels, torch.rand(batch_size, 1, SEGMENT) - 0.5, torch.randn_like(mels)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    return model(*batch)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=3e-4, betas=(0.8, 0.99))


class Pair(nn.Module):
    basis: Tensor
    window: Tensor

    def __init__(self, plain_groups: bool) -> None:
        super().__init__()
        self.generator = Generator()
        self.judges = Judges(plain_groups)
        self.register_buffer("basis", torch.rand(MELS, WINDOW // 2 + 1), persistent=False)
        self.register_buffer("window", torch.hann_window(WINDOW), persistent=False)

    def forward(self, mels: Tensor, sound: Tensor, target: Tensor) -> Tensor:
        made = self.generator(mels)
        real, fake, _, _ = self.judges(sound, made.detach())
        loss = sum(((1 - r) ** 2).mean() + (f**2).mean() for r, f in zip(real, fake, strict=True))
        frozen = {name: weight.detach() for name, weight in self.judges.named_parameters()}
        _, fake, real_seen, fake_seen = functional_call(self.judges, frozen, (sound, made))
        loss = loss + 45 * F.l1_loss(target, self.spectrum(made))
        for ours, theirs in zip(real_seen, fake_seen, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                loss = loss + 2 * (one - other).abs().mean()
        return loss + sum(((1 - f) ** 2).mean() for f in fake)

    def spectrum(self, sound: Tensor) -> Tensor:
        pad = (WINDOW - HOP) // 2
        sound = F.pad(sound.float(), (pad, pad), mode="reflect").squeeze(1)
        seen = torch.stft(
            sound, WINDOW, HOP, WINDOW, self.window.float(), center=False, return_complex=True
        )
        size = torch.sqrt(torch.view_as_real(seen).pow(2).sum(-1) + 1e-9)
        return torch.log(torch.clamp(torch.matmul(self.basis.float(), size), min=1e-5))


class Residual(nn.Module):
    def __init__(self, width: int, kernel: int):
        super().__init__()
        self.first, self.second = (
            nn.ModuleList(
                weight_norm(nn.Conv1d(width, width, kernel, 1, (kernel * d - d) // 2, dilation=d))
                for d in dilations
            )
            for dilations in ((1, 3, 5), (1, 1, 1))
        )

    def forward(self, x: Tensor) -> Tensor:
        for one, two in zip(self.first, self.second, strict=True):
            x = x + two(F.leaky_relu(one(F.leaky_relu(x, 0.1)), 0.1))
        return x


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = weight_norm(nn.Conv1d(MELS, 512, 7, 1, 3))
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        width = 512
        for rate, kernel in ((8, 16), (8, 16), (2, 4), (2, 4)):
            up = nn.ConvTranspose1d(width, width // 2, kernel, rate, (kernel - rate) // 2)
            self.ups.append(weight_norm(up))
            width //= 2
            self.blocks.append(nn.ModuleList(Residual(width, size) for size in (11, 7, 3)))
        self.last = weight_norm(nn.Conv1d(width, 1, 7, 1, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for up, blocks in zip(self.ups, self.blocks, strict=True):
            assert isinstance(blocks, nn.ModuleList)
            x = up(F.leaky_relu(x, 0.1))
            first, second, third = (block(x) for block in blocks)
            x = (first + second + third) / 3
        return torch.tanh(self.last(F.leaky_relu(x)))


class PeriodJudge(nn.Module):
    def __init__(self, period: int):
        super().__init__()
        self.period = period
        widths = (1, 32, 128, 512, 1024)
        layers = [
            nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0))
            for a, b in zip(widths, widths[1:], strict=False)
        ]
        layers.append(nn.Conv2d(1024, 1024, (5, 1), 1, (2, 0)))
        self.layers = nn.ModuleList(weight_norm(layer) for layer in layers)
        self.last = weight_norm(nn.Conv2d(1024, 1, (3, 1), 1, (1, 0)))

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = F.pad(x, (0, -x.shape[2] % self.period), "reflect")
        x = x.unflatten(2, (-1, self.period))
        return judge(self, x)


class Plain(nn.Conv1d):
    def forward(self, input: Tensor) -> Tensor:
        with torch.autocast("cuda", enabled=False):
            bias = None if self.bias is None else self.bias.float()
            return self._conv_forward(input.float(), self.weight.float(), bias).to(input.dtype)


class ScaleJudge(nn.Module):
    def __init__(self, spectral: bool, plain_groups: bool):
        super().__init__()
        norm = spectral_norm if spectral else weight_norm
        shapes = (
            *(
                (1, 128, 15, 1, 1),
                (128, 128, 41, 2, 4),
                (128, 256, 41, 2, 16),
                (256, 512, 41, 4, 16),
            ),
            *((512, 1024, 41, 4, 16), (1024, 1024, 41, 1, 16), (1024, 1024, 5, 1, 1)),
        )
        self.layers = nn.ModuleList(
            norm((Plain if plain_groups and g == 16 else nn.Conv1d)(a, b, k, s, k // 2, groups=g))
            for a, b, k, s, g in shapes
        )
        self.last = norm(nn.Conv1d(1024, 1, 3, 1, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return judge(self, x)


def judge(module: "PeriodJudge | ScaleJudge", x: Tensor) -> tuple[Tensor, list[Tensor]]:
    seen = []
    for layer in module.layers:
        x = F.leaky_relu(layer(x), 0.1)
        seen.append(x)
    x = module.last(x)
    return x.flatten(1), [*seen, x]


class Judges(nn.Module):
    def __init__(self, plain_groups: bool) -> None:
        super().__init__()
        self.periods = nn.ModuleList(PeriodJudge(period) for period in (2, 3, 5, 7, 11))
        self.scales = nn.ModuleList(ScaleJudge(number == 0, plain_groups) for number in range(3))
        self.pool = nn.AvgPool1d(4, 2, padding=1)

    def forward(
        self, sound: Tensor, made: Tensor
    ) -> tuple[list[Tensor], list[Tensor], list[list[Tensor]], list[list[Tensor]]]:
        real, fake, real_seen, fake_seen = [], [], [], []
        inputs = [(one, sound, made) for one in self.periods]
        for number, one in enumerate(self.scales):
            if number:
                sound, made = self.pool(sound), self.pool(made)
            inputs.append((one, sound, made))
        for one, ours, theirs in inputs:
            score, seen = one(ours)
            real.append(score)
            real_seen.append(seen)
            score, seen = one(theirs)
            fake.append(score)
            fake_seen.append(seen)
        return real, fake, real_seen, fake_seen
