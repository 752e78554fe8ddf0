"""GPT-2 language model, 124,439,808 parameters by default.

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", and the
weights OpenAI published with it (layer shapes, tied head, tanh GELU). Dropout is off by default,
as is usual when training from scratch.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    vocab: int = 50257,
    seq_len: int = 1024,
    dropout: float = 0.0,
) -> nn.Module:
    return GPT2(layers, hidden, heads, vocab, seq_len, dropout)


def make_batch(batch_size: int, vocab: int = 50257, seq_len: int = 1024) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len))
    targets = torch.randint(vocab, (batch_size, seq_len))
    return tokens, targets


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, targets = batch
    logits = model(tokens).float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)


def TOKENS_PER_SAMPLE(seq_len: int = 1024) -> int:
    return seq_len


class GPT2(nn.Module):
    def __init__(
        self, layers: int, hidden: int, heads: int, vocab: int, seq_len: int, dropout: float
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(seq_len, hidden)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(hidden, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.embedding.weight
        self.apply(initialise)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.embedding(tokens) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, dropout: float):
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden)
        self.attention = CausalSelfAttention(hidden, heads, dropout)
        self.ffn_norm = nn.LayerNorm(hidden)
        self.ffn = nn.Sequential(
            nn.Linear(hidden, 4 * hidden),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * hidden, hidden),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.ffn(self.ffn_norm(x))


class CausalSelfAttention(nn.Module):
    def __init__(self, hidden: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.out_dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.out_dropout(self.out(mixed.transpose(1, 2).flatten(2)))


def initialise(module: nn.Module) -> None:
    """Set the weights of one layer as GPT-2 does: normal with deviation 0.02, zero biases."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
