"""RWKV-4 of 169M parameters with its recurrence over time written as a loop in Python.

Sizes of the release (https://huggingface.co/RWKV/rwkv-4-169m-pile, config.json) at a context of
256 tokens; the recurrence is that of the paper (Peng et al. 2023, equations 11 to 18, with the
running maximum of appendix D).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TimeMixing(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.zeros(hidden))
        self.first = nn.Parameter(torch.zeros(hidden))
        self.mix = nn.Parameter(torch.full((3, hidden), 0.5))
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.value = nn.Linear(hidden, hidden, bias=False)
        self.receptance = nn.Linear(hidden, hidden, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        before = F.pad(x, (0, 0, 1, -1))
        k, v, r = (x * mix + before * (1 - mix) for mix in self.mix)
        k, v, r = self.key(k), self.value(v), torch.sigmoid(self.receptance(r))
        return self.output(r * self.recurrence(k, v))

    def recurrence(self, k: Tensor, v: Tensor) -> Tensor:
        decay = -torch.exp(self.decay)
        top = torch.zeros_like(k[:, 0])
        bottom = torch.zeros_like(top)
        largest = torch.full_like(top, -1e38)
        outputs = []
        for t in range(k.shape[1]):
            kt, vt = k[:, t], v[:, t]
            here = torch.maximum(largest, self.first + kt)
            old, new = torch.exp(largest - here), torch.exp(self.first + kt - here)
            outputs.append((old * top + new * vt) / (old * bottom + new))
            here = torch.maximum(largest + decay, kt)
            old, new = torch.exp(largest + decay - here), torch.exp(kt - here)
            top, bottom, largest = old * top + new * vt, old * bottom + new, here
        return torch.stack(outputs, dim=1)


class ChannelMixing(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.full((2, hidden), 0.5))
        self.key = nn.Linear(hidden, 4 * hidden, bias=False)
        self.value = nn.Linear(4 * hidden, hidden, bias=False)
        self.receptance = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        before = F.pad(x, (0, 0, 1, -1))
        k, r = (x * mix + before * (1 - mix) for mix in self.mix)
        return torch.sigmoid(self.receptance(r)) * self.value(F.relu(self.key(k)) ** 2)


class Block(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm1, self.time = nn.LayerNorm(hidden), TimeMixing(hidden)
        self.norm2, self.channel = nn.LayerNorm(hidden), ChannelMixing(hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.time(self.norm1(x))
        return x + self.channel(self.norm2(x))


class Rwkv(nn.Module):
    def __init__(self, vocab: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.blocks = nn.ModuleList(Block(hidden) for _ in range(layers))
        self.norm_out = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.embedding(tokens))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm_out(x))


def build_model(vocab: int = 50277, hidden: int = 768, layers: int = 12) -> nn.Module:
    return Rwkv(vocab, hidden, layers)


def make_batch(
    batch_size: int = 8, seq_len: int = 256, vocab: int = 50277
) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len + 1))
    return tokens[:, :-1], tokens[:, 1:]


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def TOKENS_PER_SAMPLE(seq_len: int = 256) -> int:
    return seq_len
