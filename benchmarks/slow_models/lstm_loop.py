"""A word-level language model of four LSTM layers whose cell is written out and looped over time.

The sizes are those of the large model of Zaremba et al. 2014 (1,500 units, 10,000 words), with four
layers and 256 steps.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Cell(nn.Module):
    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.from_input = nn.Linear(inputs, 4 * hidden)
        self.from_state = nn.Linear(hidden, 4 * hidden)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h, c = state
        gates = self.from_input(x) + self.from_state(h)
        write, forget, cell, out = gates.chunk(4, dim=-1)
        c = torch.sigmoid(forget) * c + torch.sigmoid(write) * torch.tanh(cell)
        return torch.sigmoid(out) * torch.tanh(c), c


class Layer(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.cell = Cell(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], self.hidden)
        outputs = []
        for step in x.unbind(dim=1):
            h, c = self.cell(step, (h, c))
            outputs.append(h)
        return torch.stack(outputs, dim=1)


class LanguageModel(nn.Module):
    def __init__(self, vocab: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(Layer(hidden) for _ in range(layers))
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = self.dropout(layer(x))
        return self.head(x)


def build_model(vocab: int = 10000, hidden: int = 1500, layers: int = 4) -> nn.Module:
    return LanguageModel(vocab, hidden, layers)


def make_batch(
    batch_size: int = 20, seq_len: int = 256, vocab: int = 10000
) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len + 1))
    return tokens[:, :-1], tokens[:, 1:]


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def TOKENS_PER_SAMPLE(seq_len: int = 256) -> int:
    return seq_len
