"""Direct preference optimisation (Rafailov et al. 2023): a policy beside a frozen reference.

Both are decoders of the shape of Llama-3.2-1B (16 layers of 2,048; config.json of the release).
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, hidden // heads
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, kv_heads * self.dim, bias=False)
        self.value = nn.Linear(hidden, kv_heads * self.dim, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q = self.query(x).view(batch, length, self.heads, self.dim).transpose(1, 2)
        k = self.key(x).view(batch, length, self.kv_heads, self.dim).transpose(1, 2)
        v = self.value(x).view(batch, length, self.kv_heads, self.dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.output(out.transpose(1, 2).reshape(batch, length, -1))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    one, two = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-two, one), dim=-1) * sin


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int, ffn: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.RMSNorm(hidden), Attention(hidden, heads, kv_heads)
        self.norm2 = nn.RMSNorm(hidden)
        self.gate = nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(
        self, vocab: int, hidden: int, layers: int, heads: int, kv_heads: int, ffn: int
    ) -> None:
        super().__init__()
        self.dim = hidden // heads
        self.embedding = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, kv_heads, ffn) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        rates = 500000 ** (-torch.arange(0, self.dim, 2, device=x.device) / self.dim)
        angles = torch.outer(torch.arange(tokens.shape[1], device=x.device), rates).repeat(1, 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


class Pair(nn.Module):
    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self.policy = policy
        self.reference = copy.deepcopy(policy).requires_grad_(False)


def log_probability(model: nn.Module, tokens: Tensor) -> Tensor:
    scores = model(tokens[:, :-1]).float().log_softmax(-1)
    return scores.gather(-1, tokens[:, 1:, None]).squeeze(-1).sum(-1)


def build_model(
    vocab: int = 128256,
    hidden: int = 2048,
    layers: int = 16,
    heads: int = 32,
    kv_heads: int = 8,
    ffn: int = 8192,
) -> nn.Module:
    return Pair(Decoder(vocab, hidden, layers, heads, kv_heads, ffn))


def make_batch(
    batch_size: int = 4, seq_len: int = 1024, vocab: int = 128256
) -> tuple[Tensor, Tensor]:
    chosen = torch.randint(vocab, (batch_size, seq_len))
    rejected = torch.randint(vocab, (batch_size, seq_len))
    return chosen, rejected


def compute_loss(model: Pair, batch: tuple[Tensor, Tensor], beta: float = 0.1) -> Tensor:
    chosen, rejected = batch
    margin = log_probability(model.policy, chosen) - log_probability(model.policy, rejected)
    with torch.no_grad():
        margin_before = log_probability(model.reference, chosen)
        margin_before = margin_before - log_probability(model.reference, rejected)
    return -F.logsigmoid(beta * (margin - margin_before)).mean()


def TOKENS_PER_SAMPLE(seq_len: int = 1024) -> int:
    return 2 * seq_len
