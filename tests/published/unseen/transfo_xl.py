"""Transformer-XL of transformers as fairseq's examples/truncated_bptt trains it on WikiText-103.

16 layers of 410, 10 heads of 41, 150 tokens with a memory of 150, tied embeddings of 267,744 words.
Without labels the head makes the log-probabilities of all words (three clusters and the first
20,000 words), of which fairseq takes those of the targets: 151,123,537 parameters.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS, CUTOFFS = 267_744, (20_000, 40_000, 200_000)


def build_model(
    layers: int = 16, hidden: int = 410, heads: int = 10, ffn: int = 2100, seq_len: int = 150
) -> nn.Module:
    return TransformerXL(layers, hidden, heads, ffn)


def make_batch(batch_size: int, seq_len: int = 150) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(WORDS, (batch_size, seq_len))
    return tokens, torch.randint(WORDS, (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    shares = F.log_softmax(model(batch[0]).float(), dim=-1)
    return F.nll_loss(shares.flatten(0, 1), batch[1].flatten(), reduction="sum")


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.00025)


def TOKENS_PER_SAMPLE(seq_len: int = 150) -> int:
    return seq_len


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, ffn: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.place = nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.word = nn.Parameter(torch.zeros(heads, hidden // heads))
        self.far = nn.Parameter(torch.zeros(heads, hidden // heads))
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, ffn), nn.Linear(ffn, hidden)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, places: Tensor, mask: Tensor, memory: Tensor) -> Tensor:
        length = x.shape[0]
        query, key, value = self.qkv(torch.cat((memory, x), 0)).chunk(3, dim=-1)
        query = query[-length:].unflatten(2, (self.heads, -1))
        key, value = key.unflatten(2, (self.heads, -1)), value.unflatten(2, (self.heads, -1))
        far = self.place(places).squeeze(1).unflatten(1, (self.heads, -1))
        content = torch.einsum("ibnd,jbnd->ijbn", query + self.word, key)
        distance = shifted(torch.einsum("ibnd,jnd->ijbn", query + self.far, far))
        scores = (content + distance) * query.shape[-1] ** -0.5
        scores = scores.float().masked_fill(mask[:, :, None, None], -1e30).type_as(scores)
        mixed = torch.einsum("ijbn,jbnd->ibnd", F.softmax(scores, dim=1), value)
        x = self.norm1(x + self.dropout(self.out(mixed.contiguous().flatten(2))))
        inner = self.dropout(F.relu(self.up(x)))
        return self.norm2(x + self.dropout(self.down(inner)))


def shifted(x: Tensor) -> Tensor:
    padded = torch.cat((x.new_zeros(x.shape[0], 1, *x.shape[2:]), x), dim=1)
    return padded.view(x.shape[1] + 1, x.shape[0], *x.shape[2:])[1:].view_as(x)


class TransformerXL(nn.Module):
    rates: Tensor

    def __init__(self, layers: int, hidden: int, heads: int, ffn: int):
        super().__init__()
        self.words = nn.Embedding(WORDS, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, ffn) for _ in range(layers))
        self.clusters = nn.Parameter(torch.zeros(len(CUTOFFS), hidden))
        self.cluster_bias = nn.Parameter(torch.zeros(len(CUTOFFS)))
        self.bias = nn.Parameter(torch.zeros(WORDS))
        self.dropout = nn.Dropout(0.1)
        rates = 1 / (10000 ** (torch.arange(0.0, hidden, 2.0) / hidden))
        self.register_buffer("rates", rates, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens.t().contiguous())
        x = self.dropout(x * x.shape[-1] ** 0.5)
        length = x.shape[0]
        angles = torch.outer(torch.arange(2 * length - 1, -1, -1.0, device=x.device), self.rates)
        places = self.dropout(torch.cat((angles.sin(), angles.cos()), -1).to(x.dtype)[:, None])
        mask = x.new_ones(length, 2 * length).triu(1 + length).bool()
        kept = []
        for layer in self.layers:
            kept.append(torch.cat((torch.zeros_like(x), x), 0)[length:].detach())
            x = layer(x, places, mask, torch.zeros_like(x))
        x = self.dropout(x).transpose(0, 1)
        return self.scores(x.reshape(-1, x.shape[-1])).view(*tokens.shape, -1)

    def scores(self, x: Tensor) -> Tensor:
        first = CUTOFFS[0]
        weight = torch.cat((self.words.weight[:first], self.clusters), 0)
        head = F.linear(x, weight, torch.cat((self.bias[:first], self.cluster_bias)))
        head = F.log_softmax(head, dim=1)
        out = x.new_empty(len(x), WORDS)
        out[:, :first] = head[:, :first]
        for index, (low, high) in enumerate(zip(CUTOFFS, (*CUTOFFS[1:], WORDS), strict=True)):
            tail = F.linear(x, self.words.weight[low:high], self.bias[low:high])
            tail = F.log_softmax(tail, dim=1)
            out[:, low:high] = head[:, first + index, None] + tail
        return out
