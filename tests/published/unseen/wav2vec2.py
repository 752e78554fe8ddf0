"""wav2vec 2.0 and HuBERT base of transformers for audio classification, feature encoder frozen.

Program: models/wav2vec2/modeling_wav2vec2.py of 2021 (Wav2Vec2ForSequenceClassification; HuBERT is
the same net): seven convolutions over samples of 16 kHz, a grouped convolution for positions,
layers with the norm after, attention written out, a projector of 256 and classes over the mean.
94,571,660 parameters with 12 classes, 4,200,448 of them frozen. `layers=2` is DistilHuBERT.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CONVOLUTIONS = ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))


def build_model(
    layers: int = 12, hidden: int = 768, heads: int = 12, classes: int = 12, samples: int = 16000
) -> nn.Module:
    return Wav2Vec2(layers, hidden, heads, classes)


def make_batch(batch_size: int, samples: int = 16000, classes: int = 12) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, samples), torch.randint(classes, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW([one for one in parameters if one.requires_grad], lr=3e-5)


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.value, self.out = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x) * (x.shape[-1] // self.heads) ** -0.5
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2).contiguous().flatten(0, 1)
            for part in (query, self.key(x), self.value(x))
        )
        shares = torch.bmm(query, key.transpose(1, 2)).softmax(-1)
        mixed = torch.bmm(F.dropout(shares, 0.1, self.training), value)
        mixed = mixed.unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(2)
        return self.out(mixed)


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.attention = Attention(hidden, heads)
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.dropout(self.attention(x)))
        return self.norm2(x + self.dropout(self.down(F.gelu(self.up(x)))))


class Wav2Vec2(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, classes: int):
        super().__init__()
        widths = (1,) + (512,) * len(CONVOLUTIONS)
        self.encoder = nn.ModuleList(
            nn.Conv1d(widths[i], 512, kernel, stride, bias=False)
            for i, (kernel, stride) in enumerate(CONVOLUTIONS)
        )
        self.encoder_norm = nn.GroupNorm(512, 512)
        for one in (self.encoder, self.encoder_norm):
            one.requires_grad_(False)
        self.features_norm, self.project = nn.LayerNorm(512), nn.Linear(512, hidden)
        self.masked = nn.Parameter(torch.rand(hidden))
        self.places = nn.Conv1d(hidden, hidden, 128, padding=64, groups=16)
        self.scale = nn.Parameter(torch.ones(1, 1, 128))
        self.norm, self.dropout = nn.LayerNorm(hidden), nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer(hidden, heads) for _ in range(layers))
        self.projector, self.classes = nn.Linear(hidden, 256), nn.Linear(256, classes)

    def forward(self, sound: Tensor) -> Tensor:
        x = sound[:, None]
        for i, layer in enumerate(self.encoder):
            x = layer(x)
            x = F.gelu(self.encoder_norm(x) if i == 0 else x)
        x = self.dropout(self.project(self.features_norm(x.transpose(1, 2))))
        weight = self.places.weight
        weight = weight * (self.scale / weight.norm(dim=(0, 1), keepdim=True))
        places = F.conv1d(x.transpose(1, 2), weight, self.places.bias, padding=64, groups=16)
        x = self.dropout(self.norm(x + F.gelu(places[:, :, :-1]).transpose(1, 2)))
        for layer in self.layers:
            x = layer(x)
        return self.classes(self.projector(x).mean(1))
