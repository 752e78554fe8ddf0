"""T5 v1.1 as T5X has it: encoder and decoder of equal depth, gated GELU, a head of its own.

Source: google-research/t5x, t5x/contrib/gpu/t5/network.py and t5_1_1/*.gin: RMS norms, no biases,
biases of relative positions shared by the layers of each side, no dropout, logits in fp32.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 24,
    hidden: int = 1024,
    heads: int = 16,
    head_dim: int = 64,
    ffn: int = 2816,
    vocab: int = 32128,
    inputs: int = 512,
    targets: int = 128,
) -> nn.Module:
    return T5(layers, hidden, heads, head_dim, ffn, vocab, inputs, targets)


def make_batch(
    batch_size: int, inputs: int = 512, targets: int = 128, vocab: int = 32128
) -> tuple[Tensor, Tensor, Tensor]:
    shape = (batch_size, targets)
    source = torch.randint(vocab, (batch_size, inputs))
    return source, torch.randint(vocab, shape), torch.randint(vocab, shape)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    source, target, wanted = batch
    logits = model(source, target).float()
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4)


def TOKENS_PER_SAMPLE(inputs: int = 512, targets: int = 128) -> int:
    return inputs + targets


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, head_dim: int):
        super().__init__()
        self.heads = heads
        inner = heads * head_dim
        self.q, self.k, self.v = (nn.Linear(hidden, inner, bias=False) for _ in range(3))
        self.out = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor, seen: Tensor, bias: Tensor | None) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.q(x), self.k(seen), self.v(seen))
        )
        scores = q @ k.transpose(-2, -1)
        if bias is not None:
            scores = scores + bias.to(scores.dtype)
        return self.out((scores.softmax(-1, dtype=scores.dtype) @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, head_dim: int, ffn: int, decodes: bool):
        super().__init__()
        self.norm1 = nn.RMSNorm(hidden, eps=1e-6)
        self.own = Attention(hidden, heads, head_dim)
        self.norm2 = nn.RMSNorm(hidden, eps=1e-6) if decodes else None
        self.cross = Attention(hidden, heads, head_dim) if decodes else None
        self.norm3 = nn.RMSNorm(hidden, eps=1e-6)
        self.gate = nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Tensor, seen: Tensor | None, bias: Tensor) -> Tensor:
        inner = self.norm1(x)
        x = x + self.own(inner, inner, bias)
        if self.cross is not None and self.norm2 is not None:
            x = x + self.cross(self.norm2(x), seen, None)
        inner = self.norm3(x)
        return x + self.down(F.gelu(self.gate(inner), approximate="tanh") * self.up(inner))


class T5(nn.Module):
    def __init__(
        self,
        layers: int,
        hidden: int,
        heads: int,
        head_dim: int,
        ffn: int,
        vocab: int,
        inputs: int,
        targets: int,
    ):
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.encoder_bias = nn.Embedding(32, heads)
        self.decoder_bias = nn.Embedding(32, heads)
        self.encoder = nn.ModuleList(
            Layer(hidden, heads, head_dim, ffn, decodes=False) for _ in range(layers)
        )
        self.decoder = nn.ModuleList(
            Layer(hidden, heads, head_dim, ffn, decodes=True) for _ in range(layers)
        )
        self.norm1 = nn.RMSNorm(hidden, eps=1e-6)
        self.norm2 = nn.RMSNorm(hidden, eps=1e-6)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def bias(self, table: nn.Embedding, length: int) -> Tensor:
        places = torch.arange(length, device=table.weight.device)
        apart = (places[None] - places[:, None]).clamp(-15, 16) + 15
        return table(apart).permute(2, 0, 1)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x = self.words(source)
        bias = self.bias(self.encoder_bias, source.shape[1])
        for layer in self.encoder:
            x = layer(x, None, bias)
        seen = self.norm1(x)
        x = self.words(target)
        length = target.shape[1]
        hidden = torch.full((length, length), float("-inf"), device=x.device).triu(1)
        bias = self.bias(self.decoder_bias, length) + hidden
        for layer in self.decoder:
            x = layer(x, seen, bias)
        return self.head(self.norm2(x))
