"""GPT-2-small with rotary positions, normed queries and keys and squared ReLU.

As KellerJordan/modded-nanogpt had it in October 2024: norms without weights, no biases, head tied
to the embedding.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB = 50_304


def build_model(
    layers: int = 12, heads: int = 6, hidden: int = 768, seq_len: int = 1024
) -> nn.Module:
    return GPT(layers, heads, hidden, seq_len)


def make_batch(batch_size: int, seq_len: int = 1024) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(VOCAB, (batch_size, seq_len))
    return tokens, torch.randint(VOCAB, (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    logits = model(batch[0]).float()
    return F.cross_entropy(logits.view(-1, VOCAB), batch[1].view(-1))


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1.8e-3, betas=(0.9, 0.95), weight_decay=0.0)


def TOKENS_PER_SAMPLE(seq_len: int = 1024) -> int:
    return seq_len


def norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],))


class Attention(nn.Module):
    cos: Tensor
    sin: Tensor

    def __init__(self, heads: int, hidden: int, seq_len: int):
        super().__init__()
        self.heads, self.width = heads, hidden // heads
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.value = nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        rates = 1.0 / 10_000 ** (torch.arange(0, self.width, 2).float() / self.width)
        angles = torch.outer(torch.arange(seq_len).float(), rates)
        self.register_buffer("cos", angles.cos().bfloat16()[None, :, None], persistent=False)
        self.register_buffer("sin", angles.sin().bfloat16()[None, :, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        shape = (-1, self.width)
        query, key = self.query(x).unflatten(2, shape), self.key(x).unflatten(2, shape)
        value = self.value(x).unflatten(2, shape)
        query, key = self.rotate(norm(query)), self.rotate(norm(key))
        mixed = F.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )
        return self.out(mixed.transpose(1, 2).contiguous().view_as(x))

    def rotate(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=3)
        turned = (first * self.cos + second * self.sin, second * self.cos - first * self.sin)
        return torch.cat(turned, 3).type_as(x)


class Block(nn.Module):
    def __init__(self, heads: int, hidden: int, seq_len: int):
        super().__init__()
        self.attention = Attention(heads, hidden, seq_len)
        self.up = nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(norm(x))
        return x + self.down(F.relu(self.up(norm(x))).square())


class GPT(nn.Module):
    def __init__(self, layers: int, heads: int, hidden: int, seq_len: int):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, hidden)
        self.blocks = nn.ModuleList(Block(heads, hidden, seq_len) for _ in range(layers))
        self.head = nn.Linear(hidden, VOCAB, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(norm(x))
