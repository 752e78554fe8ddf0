"""The transformer of DeepSpeedExamples' training/bf16_master_weight.

Norms come after each residual sum, attention is nn.MultiheadAttention, which returns its weights
and so writes scores out, and nothing is masked. About 6.86 billion parameters with 32 layers of
4,096 and the 50,257 tokens of GPT-2.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 32, hidden: int = 4096, heads: int = 32, vocab: int = 50257, seq_len: int = 512
) -> nn.Module:
    return Model(layers, hidden, heads, vocab, seq_len)


def make_batch(batch_size: int, vocab: int = 50257, seq_len: int = 512) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len))
    return tokens, torch.randint(vocab, (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    logits = model(batch[0])
    return F.cross_entropy(logits.flatten(0, 1), batch[1].flatten())


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01)


def TOKENS_PER_SAMPLE(seq_len: int = 512) -> int:
    return seq_len


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.attention = nn.MultiheadAttention(hidden, heads, batch_first=True)
        self.norm1 = nn.LayerNorm(hidden)
        self.norm2 = nn.LayerNorm(hidden)
        self.ffn = nn.Sequential(
            nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden)
        )

    def forward(self, x: Tensor) -> Tensor:
        mixed, _ = self.attention(x, x, x)
        x = self.norm1(x + mixed)
        return self.norm2(x + self.ffn(x))


class Model(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, vocab: int, seq_len: int):
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.places = nn.Embedding(seq_len, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.head = nn.Linear(hidden, vocab)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device).expand(len(tokens), -1)
        x = self.words(tokens) + self.places(places)
        for block in self.blocks:
            x = block(x)
        return self.head(x)
