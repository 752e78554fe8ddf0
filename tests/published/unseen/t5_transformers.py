"""T5 as transformers runs it (T5ForConditionalGeneration), attention written out; t5-large.

`gated` with `tied=False` is v1.1 and FLAN-T5. Program: transformers, models/t5/modeling_t5.py of
2021 to 2023: norms in fp32, no scaling of scores, a bias of relative positions that each side's
layers share, softmax in fp32, dropout of 0.1 on weights, branches and inner activations.
`smoothing` is the label smoothing of examples/seq2seq; `frozen_words` its --freeze_embeds.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 24,
    hidden: int = 1024,
    heads: int = 16,
    head_dim: int = 64,
    ffn: int = 4096,
    vocab: int = 32128,
    inputs: int = 128,
    targets: int = 128,
    gated: bool = False,
    tied: bool = True,
    dropout: float = 0.1,
    frozen_words: bool = False,
) -> nn.Module:
    model = T5(layers, hidden, heads, head_dim, ffn, vocab, gated, tied, dropout)
    if frozen_words:
        model.words.requires_grad_(False)
    return model


def make_batch(
    batch_size: int, inputs: int = 128, targets: int = 128, vocab: int = 32128
) -> tuple[Tensor, Tensor, Tensor]:
    shape = (batch_size, targets)
    source = torch.randint(vocab, (batch_size, inputs))
    return source, torch.randint(vocab, shape), torch.randint(vocab, shape)


def compute_loss(
    model: nn.Module, batch: tuple[Tensor, Tensor, Tensor], smoothing: float = 0.0
) -> Tensor:
    source, target, wanted = batch
    logits = model(source, target)
    if smoothing:
        chances = F.log_softmax(logits, dim=-1)
        right = -chances.gather(-1, wanted.unsqueeze(-1)).mean()
        return (1 - smoothing) * right - smoothing * chances.mean()
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW([one for one in parameters if one.requires_grad], lr=1e-4)


def TOKENS_PER_SAMPLE(inputs: int = 128, targets: int = 128) -> int:
    return inputs + targets


class Norm(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        spread = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(spread + 1e-6)
        return self.weight * x.to(self.weight.dtype)


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, head_dim: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        inner = heads * head_dim
        self.q, self.k, self.v = (nn.Linear(hidden, inner, bias=False) for _ in range(3))
        self.out = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in (self.q(x), self.k(seen), self.v(seen))
        )
        scores = q @ k.transpose(2, 3)
        scores = scores + bias
        weights = F.softmax(scores.float(), dim=-1).type_as(scores)
        weights = F.dropout(weights, self.dropout, self.training)
        return self.out((weights @ v).transpose(1, 2).contiguous().flatten(2))


class FeedForward(nn.Module):
    def __init__(self, hidden: int, ffn: int, gated: bool, dropout: float):
        super().__init__()
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.gate = nn.Linear(hidden, ffn, bias=False) if gated else None
        self.down = nn.Linear(ffn, hidden, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            inner = F.relu(self.up(x))
        else:
            inner = F.gelu(self.up(x), approximate="tanh") * self.gate(x)
        return self.down(self.dropout(inner))


class Layer(nn.Module):
    def __init__(self, hidden, heads, head_dim, ffn, gated, dropout, crosses: bool):
        super().__init__()
        self.norm1, self.norm3 = Norm(hidden), Norm(hidden)
        self.own = Attention(hidden, heads, head_dim, dropout)
        self.norm2 = Norm(hidden) if crosses else None
        self.cross = Attention(hidden, heads, head_dim, dropout) if crosses else None
        self.ffn = FeedForward(hidden, ffn, gated, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, bias: Tensor, seen: Tensor, seen_bias: Tensor) -> Tensor:
        inner = self.norm1(x)
        x = x + self.dropout(self.own(inner, inner, bias))
        if self.cross is not None and self.norm2 is not None:
            x = x + self.dropout(self.cross(self.norm2(x), seen, seen_bias))
        return x + self.dropout(self.ffn(self.norm3(x)))


class Side(nn.Module):
    def __init__(self, layers, hidden, heads, head_dim, ffn, gated, dropout, decodes: bool):
        super().__init__()
        self.decodes = decodes
        self.places = nn.Embedding(32, heads)
        self.blocks = nn.ModuleList(
            Layer(hidden, heads, head_dim, ffn, gated, dropout, decodes) for _ in range(layers)
        )
        self.norm, self.dropout = Norm(hidden), nn.Dropout(dropout)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        x = self.dropout(x)
        length = x.shape[1]
        steps = torch.arange(length, device=x.device)
        bucket = (steps[:, None] - steps[None, :]).abs().clamp(max=31)
        bias = self.places(bucket).permute(2, 0, 1).unsqueeze(0)
        if self.decodes:
            bias = bias + torch.full_like(bias[:, :1], -1e4).triu(1)
        bias = bias + torch.zeros(x.shape[0], 1, 1, length, device=x.device, dtype=bias.dtype)
        seen_bias = (
            torch.zeros(
                x.shape[0],
                self.places.embedding_dim,
                length,
                seen.shape[1],
                device=x.device,
                dtype=bias.dtype,
            )
            if self.decodes
            else bias
        )
        for block in self.blocks:
            x = block(x, bias, seen, seen_bias)
        return self.dropout(self.norm(x))


class T5(nn.Module):
    def __init__(self, layers, hidden, heads, head_dim, ffn, vocab, gated, tied, dropout):
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.encoder = Side(layers, hidden, heads, head_dim, ffn, gated, dropout, False)
        self.decoder = Side(layers, hidden, heads, head_dim, ffn, gated, dropout, True)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.scale = hidden**-0.5 if tied else 1.0
        if tied:
            self.head.weight = self.words.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x = self.words(source)
        seen = self.encoder(x, x)
        made = self.decoder(self.words(target), seen)
        return self.head(made * self.scale if self.scale != 1.0 else made)
