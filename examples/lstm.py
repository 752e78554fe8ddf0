"""LSTM language model, 66,034,000 parameters by default.

Source: Zaremba et al. 2014, "Recurrent Neural Network Regularization" (arXiv:1409.2329): the large
Penn Treebank model, two layers of 1,500 units unrolled over 35 steps.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 2, hidden: int = 1500, vocab: int = 10_000, dropout: float = 0.65
) -> nn.Module:
    return LanguageModel(layers, hidden, vocab, dropout)


def make_batch(batch_size: int, vocab: int = 10_000, seq_len: int = 35) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len))
    targets = torch.randint(vocab, (batch_size, seq_len))
    return tokens, targets


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1.0)


def TOKENS_PER_SAMPLE(seq_len: int = 35) -> int:
    return seq_len


class LanguageModel(nn.Module):
    def __init__(self, layers: int, hidden: int, vocab: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.dropout = nn.Dropout(dropout)
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(hidden, hidden, layers, batch_first=True, dropout=between)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.dropout(self.embedding(tokens)))
        return self.head(self.dropout(states))
