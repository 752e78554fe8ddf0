"""Transformer-XL base on WikiText-103, of NVIDIA's DeepLearningExamples.

PyTorch/LanguageModeling/Transformer-XL:
16 layers of 512, 8 heads, 192 tokens with a memory of 192, tied embeddings of 267,735 words and an
adaptive softmax. Of the targets 2.5 %, 2.5 % and 0.2 % are in the three tails, which the program
selects by value; here they are the first ones. The memory is zero, its copy is made.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS, CUTOFFS, TAILS = 267_735, (19_997, 39_997, 199_997), (0.025, 0.025, 0.002)


def build_model(
    layers: int = 16, hidden: int = 512, heads: int = 8, ffn: int = 2048, dropout: float = 0.1
) -> nn.Module:
    return TransformerXL(layers, hidden, heads, ffn, dropout)


def make_batch(batch_size: int, seq_len: int = 192) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(CUTOFFS[0], (batch_size, seq_len))
    return tokens, torch.randint(CUTOFFS[0], (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return model(batch[0].t().contiguous(), batch[1].t().contiguous()).float().mean()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def TOKENS_PER_SAMPLE(seq_len: int = 192) -> int:
    return seq_len


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, ffn: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.place = nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.attention_norm, self.norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(dropout)
        self.core = nn.Sequential(
            nn.Linear(hidden, ffn),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(ffn, hidden),
            nn.Dropout(dropout),
        )

    def forward(
        self, x: Tensor, places: Tensor, word: Tensor, place: Tensor, mask: Tensor, memory: Tensor
    ) -> Tensor:
        length = x.shape[0]
        query, key, value = self.qkv(torch.cat((memory, x), 0)).chunk(3, dim=-1)
        query = query[-length:].unflatten(2, (self.heads, -1))
        key, value = key.unflatten(2, (self.heads, -1)), value.unflatten(2, (self.heads, -1))
        far = self.place(places).squeeze(1).unflatten(1, (self.heads, -1))
        content = torch.einsum("ibnd,jbnd->bnij", query + word, key)
        distance = shift(torch.einsum("ibnd,jnd->bnij", query + place, far))
        scores = (content + distance) * query.shape[-1] ** -0.5
        scores = scores.masked_fill_(mask, -float("inf"))
        mixed = torch.einsum("bnij,jbnd->ibnd", F.softmax(scores, dim=3), value)
        x = self.attention_norm(x + self.dropout(self.out(mixed.contiguous().flatten(2))))
        return self.norm(x + self.core(x))


def shift(x: Tensor) -> Tensor:
    padded = torch.cat((x.new_zeros(*x.shape[:3], 1), x), dim=3)
    return padded.view(x.shape[0], x.shape[1], x.shape[3] + 1, x.shape[2])[:, :, 1:].view_as(x)


class TransformerXL(nn.Module):
    rates: Tensor

    def __init__(self, layers: int, hidden: int, heads: int, ffn: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, ffn, dropout) for _ in range(layers))
        self.word_bias = nn.Parameter(torch.zeros(heads, hidden // heads))
        self.place_bias = nn.Parameter(torch.zeros(heads, hidden // heads))
        self.clusters = nn.Parameter(torch.zeros(len(CUTOFFS), hidden))
        self.cluster_bias = nn.Parameter(torch.zeros(len(CUTOFFS)))
        self.bias = nn.Parameter(torch.zeros(WORDS))
        self.dropout = nn.Dropout(dropout)
        rates = 1 / (10000 ** (torch.arange(0.0, hidden, 2.0) / hidden))
        self.register_buffer("rates", rates, persistent=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens)
        x = self.dropout(x * x.shape[-1] ** 0.5)
        length = tokens.shape[0]
        angles = torch.outer(torch.arange(2 * length - 1, -1, -1.0, device=x.device), self.rates)
        places = torch.cat((angles.sin(), angles.cos()), dim=-1).to(x.dtype)[:, None]
        places = self.dropout(places)
        mask = x.new_ones(length, 2 * length).triu(1 + length).bool()[None, None]
        seen = []
        for layer in self.layers:
            seen.append(x.detach())
            memory = torch.zeros_like(x)
            x = layer(x, places, self.word_bias, self.place_bias, mask, memory)
        torch.stack(seen)
        return self.losses(self.dropout(x).flatten(0, 1), targets.flatten())

    def losses(self, x: Tensor, targets: Tensor) -> Tensor:
        weight, bias, first = self.embedding.weight, self.bias, CUTOFFS[0]
        head = F.linear(
            x,
            torch.cat((weight[:first], self.clusters)),
            torch.cat((bias[:first], self.cluster_bias)),
        )
        head = F.log_softmax(head, dim=1)
        parts, start = [], 0
        ends = (*CUTOFFS[1:], WORDS)
        for number, share in enumerate(TAILS):
            count = max(1, int(share * len(targets)))
            chosen = torch.arange(start, start + count, device=x.device)
            low, high = CUTOFFS[number], ends[number]
            tail = F.linear(x.index_select(0, chosen), weight[low:high], bias[low:high])
            tail = F.log_softmax(tail, dim=1)
            picked = tail.gather(1, targets.index_select(0, chosen)[:, None] % 1000).squeeze(1)
            parts.append(head.index_select(0, chosen)[:, -1 - number] + picked)
            start += count
        rest = torch.arange(start, len(targets), device=x.device)
        near = head.index_select(0, rest).gather(1, targets.index_select(0, rest)[:, None])
        return -torch.cat((near.squeeze(1), *parts))
