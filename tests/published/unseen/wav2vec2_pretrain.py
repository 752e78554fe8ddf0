"""wav2vec 2.0 as fairseq pre-trains it: base by default, `large` with norms before the layers.

Program: facebookresearch/fairseq, fairseq/models/wav2vec/wav2vec2.py of 2020: seven convolutions
over samples of 16 kHz (which train, at a tenth of the gradient), half of the steps masked, a
quantizer of two times 320 codes and the masked steps told from 100 others. Which steps are masked
and which are the others is given with the batch.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CONVOLUTIONS = ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))
OTHERS = 100


def steps_of(samples: int) -> int:
    for kernel, stride in CONVOLUTIONS:
        samples = (samples - kernel) // stride + 1
    return samples


def build_model(
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    large: bool = False,
    samples: int = 250000,
) -> nn.Module:
    return Wav2Vec2(layers, hidden, heads, large)


def make_batch(batch_size: int, samples: int = 250000) -> tuple[Tensor, Tensor, Tensor]:
    masked = steps_of(samples) // 2
    places = torch.randint(steps_of(samples), (batch_size, masked))
    return (
        torch.randn(batch_size, samples),
        places,
        torch.randint(masked, (batch_size, masked * OTHERS)),
    )


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    scores = model(*batch).flatten(1).transpose(0, 1).float()
    return F.cross_entropy(scores, scores.new_zeros(len(scores), dtype=torch.long))


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=5e-4, weight_decay=0.01)


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, is_before: bool):
        super().__init__()
        self.heads, self.is_before = heads, is_before
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.value, self.out = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.dropout = nn.Dropout(0.0 if is_before else 0.1)

    def attend(self, x: Tensor) -> Tensor:
        query = self.query(x) * (x.shape[-1] // self.heads) ** -0.5
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2).contiguous().flatten(0, 1)
            for part in (query, self.key(x), self.value(x))
        )
        shares = self.dropout(torch.bmm(query, key.transpose(1, 2)).float().softmax(-1))
        mixed = torch.bmm(shares.type_as(value), value).unflatten(0, (-1, self.heads))
        return self.out(mixed.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        if self.is_before:
            x = x + self.dropout(self.attend(self.norm1(x)))
            return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))
        x = self.norm1(x + self.dropout(self.attend(x)))
        return self.norm2(x + self.dropout(self.down(F.gelu(self.up(x)))))


class Wav2Vec2(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, large: bool):
        super().__init__()
        widths, final = (1,) + (512,) * len(CONVOLUTIONS), 768 if large else 256
        self.encoder = nn.ModuleList(
            nn.Conv1d(widths[i], 512, kernel, stride, bias=large)
            for i, (kernel, stride) in enumerate(CONVOLUTIONS)
        )
        count = len(CONVOLUTIONS) if large else 0
        self.norms = nn.ModuleList(nn.LayerNorm(512) for _ in range(count))
        self.first_norm = None if large else nn.GroupNorm(512, 512)
        self.features_norm, self.project = nn.LayerNorm(512), nn.Linear(512, hidden)
        self.masked = nn.Parameter(torch.rand(hidden))
        self.places = nn.Conv1d(hidden, hidden, 128, padding=64, groups=16)
        self.scale = nn.Parameter(torch.ones(1, 1, 128))
        self.norm, self.dropout = nn.LayerNorm(hidden), nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer(hidden, heads, large) for _ in range(layers))
        self.codes = nn.Linear(512, 640)
        self.entries = nn.Parameter(torch.rand(640, final // 2))
        self.project_codes, self.final = nn.Linear(final, final), nn.Linear(hidden, final)

    def features(self, sound: Tensor) -> Tensor:
        x = sound[:, None]
        for i, layer in enumerate(self.encoder):
            x = layer(x)
            if self.norms:
                x = self.norms[i](x.transpose(1, 2)).transpose(1, 2)
            elif i == 0 and self.first_norm is not None:
                x = self.first_norm(x)
            x = F.gelu(x)
        return self.features_norm(x.transpose(1, 2))

    def quantized(self, seen: Tensor) -> Tensor:
        logits = self.codes(seen).unflatten(-1, (2, 320)).float()
        noise = -torch.empty_like(logits).exponential_().log()
        soft = ((logits + noise) / 2.0).softmax(-1).to(self.entries.dtype)
        both = [soft[..., i, :] @ self.entries[320 * i : 320 * (i + 1)] for i in range(2)]
        return self.project_codes(torch.cat(both, -1))

    def forward(self, sound: Tensor, places: Tensor, others: Tensor) -> Tensor:
        features = self.features(sound)
        x = self.dropout(self.project(features))
        index = places[:, :, None].expand(-1, -1, x.shape[-1])
        x = x.scatter(1, index, self.masked.to(x.dtype).expand_as(index))
        weight = self.places.weight
        weight = weight * (self.scale / weight.norm(dim=(0, 1), keepdim=True))
        moved = F.conv1d(x.transpose(1, 2), weight, self.places.bias, padding=64, groups=16)
        x = self.dropout(self.norm(x + F.gelu(moved[:, :, :-1]).transpose(1, 2)))
        for layer in self.layers:
            x = layer(x)
        x = self.final(x.gather(1, index))
        wanted = self.quantized(
            features.gather(1, places[:, :, None].expand(-1, -1, features.shape[-1]))
        )
        wide = others[:, :, None].expand(-1, -1, wanted.shape[-1])
        wrong = wanted.gather(1, wide).unflatten(1, (-1, OTHERS)).permute(2, 0, 1, 3)
        choices = torch.cat((wanted[None], wrong))
        return F.cosine_similarity(x[None].float(), choices.float(), dim=-1) / 0.1
