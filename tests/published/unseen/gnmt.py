"""GNMT v2 as in NVIDIA's DeepLearningExamples (PyTorch/Translation/GNMT): LSTM encoder and decoder.

Encoder: one bidirectional layer and three plain ones; decoder: four layers, the first with normed
Bahdanau attention over all positions at once; 1,024 units, vocabulary of 32,320, embeddings shared
by both sides but not by the classifier. Loss with label smoothing of 0.1, tokens time first.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB = 32_320


def build_model(hidden: int = 1024, layers: int = 4, dropout: float = 0.2) -> nn.Module:
    return GNMT(hidden, layers, dropout)


def make_batch(batch_size: int, seq_len: int = 27) -> tuple[Tensor, Tensor, Tensor]:
    source = torch.randint(4, VOCAB, (batch_size, seq_len))
    target = torch.randint(4, VOCAB, (batch_size, seq_len))
    return source, target, torch.randint(4, VOCAB, (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    source, target, labels = batch
    scores = model(source.t().contiguous(), target.t().contiguous()).flatten(0, 1)
    logs = F.log_softmax(scores, dim=-1, dtype=torch.float32)
    chosen = -logs.gather(-1, labels.t().reshape(-1, 1)).squeeze(1)
    smooth = -logs.mean(dim=-1)
    return (0.9 * chosen + 0.1 * smooth).sum() / labels.shape[0]


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=2e-3)


def TOKENS_PER_SAMPLE(seq_len: int = 27) -> int:
    return seq_len


class GNMT(nn.Module):
    def __init__(self, hidden: int, layers: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, hidden)
        self.encoder = Encoder(hidden, layers, dropout)
        self.decoder = Decoder(hidden, layers, dropout)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.decoder(self.embedding(target), self.encoder(self.embedding(source)))


class Encoder(nn.Module):
    def __init__(self, hidden: int, layers: int, dropout: float):
        super().__init__()
        first = nn.LSTM(hidden, hidden, bidirectional=True)
        rest = [nn.LSTM(2 * hidden if i == 0 else hidden, hidden) for i in range(layers - 1)]
        self.layers = nn.ModuleList([first, *rest])
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            y, _ = layer(self.dropout(x))
            x = y if number < 2 else y + x
        return x


class Decoder(nn.Module):
    def __init__(self, hidden: int, layers: int, dropout: float):
        super().__init__()
        self.first = nn.LSTM(hidden, hidden)
        self.attention = Attention(hidden)
        self.layers = nn.ModuleList(nn.LSTM(2 * hidden, hidden) for _ in range(layers - 1))
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(hidden, VOCAB)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        x, _ = self.first(self.dropout(x))
        seen = self.attention(x, context)
        for number, layer in enumerate(self.layers):
            y, _ = layer(self.dropout(torch.cat((x, seen), dim=2)))
            x = y if number == 0 else y + x
        return self.classifier(x)


class Attention(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.vector = nn.Parameter(torch.empty(hidden).uniform_(-0.1, 0.1))
        self.scale = nn.Parameter(torch.full((1,), hidden**-0.5))
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        keys, query = keys.transpose(0, 1), query.transpose(0, 1)
        asked, known = self.query(query), self.key(keys)
        batch, length, width = asked.shape
        shape = (batch, length, known.shape[1], width)
        summed = asked.unsqueeze(2).expand(shape) + known.unsqueeze(1).expand(shape)
        vector = self.vector / self.vector.norm() * self.scale
        scores = torch.tanh(summed + self.bias).matmul(vector)
        mask = torch.zeros(batch, 1, keys.shape[1], dtype=torch.bool, device=keys.device)
        scores = scores.masked_fill(mask, -65504.0)
        return torch.bmm(F.softmax(scores, dim=-1), keys).transpose(0, 1)
