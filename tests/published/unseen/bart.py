"""BART-large in pre-training as in NVIDIA's DeepLearningExamples (PyTorch/LanguageModeling/BART):
12 + 12 layers of 1,024, norms before (`pre_ln`), attention written out, head tied to the embedding.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB, HIDDEN, HEADS, FFN, LAYERS = 50_265, 1024, 16, 4096, 12


def build_model(dropout: float = 0.1) -> nn.Module:
    return Bart(dropout)


def make_batch(batch_size: int, seq_len: int = 128) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    source, target, labels = (torch.randint(VOCAB, (batch_size, seq_len)) for _ in range(3))
    return source, torch.ones(batch_size, seq_len, dtype=torch.long), target, labels


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    source, mask, target, labels = batch
    logits = model(source, mask, target)
    return F.cross_entropy(logits.view(-1, VOCAB), labels.view(-1), ignore_index=1)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=5e-3)


def TOKENS_PER_SAMPLE(seq_len: int = 128) -> int:
    return seq_len


class Attention(nn.Module):
    def __init__(self, dropout: float):
        super().__init__()
        self.key, self.value, self.query, self.out = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.dropout = dropout

    def split(self, x: Tensor) -> Tensor:
        x = x.unflatten(2, (HEADS, -1)).transpose(1, 2).contiguous()
        return x.flatten(0, 1)

    def forward(self, x: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        query = self.split(self.query(x) * (HIDDEN // HEADS) ** -0.5)
        key, value = self.split(self.key(context)), self.split(self.value(context))
        scores = torch.bmm(query, key.transpose(1, 2))
        scores = scores.unflatten(0, (-1, HEADS)) + mask.to(scores.dtype)
        scores = F.softmax(scores.flatten(0, 1), dim=-1, dtype=scores.dtype)
        mixed = torch.bmm(F.dropout(scores, self.dropout, self.training), value)
        mixed = mixed.unflatten(0, (-1, HEADS)).transpose(1, 2)
        return self.out(mixed.reshape(x.shape))


class Layer(nn.Module):
    def __init__(self, cross: bool, dropout: float):
        super().__init__()
        self.attention, self.attention_norm = Attention(dropout), nn.LayerNorm(HIDDEN)
        self.cross = Attention(dropout) if cross else None
        self.cross_norm = nn.LayerNorm(HIDDEN) if cross else None
        self.up, self.down = nn.Linear(HIDDEN, FFN), nn.Linear(FFN, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor, context: Tensor | None, seen: Tensor) -> Tensor:
        y = self.attention_norm(x)
        x = x + self.dropout(self.attention(y, y, mask))
        if self.cross is not None and self.cross_norm is not None and context is not None:
            x = x + self.dropout(self.cross(self.cross_norm(x), context, seen))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm(x)))))


class Half(nn.Module):
    def __init__(self, cross: bool, dropout: float):
        super().__init__()
        self.positions = nn.Embedding(1026, HIDDEN)
        self.first_norm, self.last_norm = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.layers = nn.ModuleList(Layer(cross, dropout) for _ in range(LAYERS))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor, context: Tensor | None, seen: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device) + 2
        x = self.dropout(self.first_norm(x + self.positions(places)))
        for layer in self.layers:
            x = layer(x, mask, context, seen)
        return self.last_norm(x)


class Bart(nn.Module):
    bias: Tensor

    def __init__(self, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN, padding_idx=1)
        self.encoder, self.decoder = Half(False, dropout), Half(True, dropout)
        self.register_buffer("bias", torch.zeros(1, VOCAB))

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        x = self.embedding(source)
        length = target.shape[1]
        hidden = (1 - mask[:, None, None, :].to(x.dtype)) * -1e4
        seen = hidden.expand(-1, 1, source.shape[1], -1)
        context = self.encoder(x, seen, None, seen)
        later = torch.full((length, length), -1e4, dtype=x.dtype, device=x.device).triu(1)
        later = later[None, None].expand(target.shape[0], 1, -1, -1)
        y = self.decoder(self.embedding(target), later, context, hidden.expand(-1, 1, length, -1))
        return F.linear(y, self.embedding.weight) + self.bias
