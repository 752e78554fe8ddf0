"""BertForSequenceClassification of transformers in 2022, with eager attention and dropouts of 0.1.

The defaults are bert-large-uncased with two classes: 335,143,938 parameters. The masked positions
are none, and their mask is added to the scores all the same.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 24, hidden: int = 1024, heads: int = 16, vocab: int = 30522, classes: int = 2
) -> nn.Module:
    return Bert(layers, hidden, heads, vocab, classes)


def make_batch(batch_size: int, seq_len: int = 512, vocab: int = 30522) -> tuple[Tensor, Tensor]:
    return torch.randint(vocab, (batch_size, seq_len)), torch.randint(2, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=5e-5, weight_decay=0.0)


def TOKENS_PER_SAMPLE(seq_len: int = 512) -> int:
    return seq_len


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, hidden)
        self.norm1 = nn.LayerNorm(hidden, eps=1e-12)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(2, (self.heads, -1)).permute(0, 2, 1, 3)
            for layer in (self.query, self.key, self.value)
        )
        scores = torch.matmul(query, key.transpose(-1, -2)) / query.shape[-1] ** 0.5
        shares = self.dropout(F.softmax(scores + mask, dim=-1))
        mixed = torch.matmul(shares, value).permute(0, 2, 1, 3).contiguous().flatten(2)
        x = self.norm1(self.dropout(self.out(mixed)) + x)
        return self.norm2(self.dropout(self.down(F.gelu(self.up(x)))) + x)


class Bert(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, vocab: int, classes: int):
        super().__init__()
        self.words = nn.Embedding(vocab, hidden, padding_idx=0)
        self.places = nn.Embedding(512, hidden)
        self.kinds = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.pooler = nn.Linear(hidden, hidden)
        self.classes = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        places = torch.arange(length, device=tokens.device)
        x = self.words(tokens) + self.kinds(torch.zeros_like(tokens))
        x = self.dropout(self.norm(x + self.places(places)))
        mask = torch.zeros(len(tokens), 1, 1, length, dtype=x.dtype, device=x.device)
        for block in self.blocks:
            x = block(x, mask)
        return self.classes(self.dropout(torch.tanh(self.pooler(x[:, 0]))))
