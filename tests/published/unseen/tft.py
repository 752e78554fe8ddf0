"""Temporal Fusion Transformer as in NVIDIA's DeepLearningExamples (PyTorch/Forecasting/TFT).

Electricity: 369 consumers (`ids`), 3 known numbers and the target over 192 hours, of which 168 are
past; width 128, 4 heads that share one value, three quantiles. Traffic: 963 sensors, dropout 0.3.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HOURS, PAST, KNOWN = 192, 168, 3
QUANTILES = (0.1, 0.5, 0.9)


def build_model(
    ids: int = 369, hidden: int = 128, heads: int = 4, dropout: float = 0.1
) -> nn.Module:
    return Forecaster(ids, hidden, heads, dropout)


def make_batch(batch_size: int, ids: int = 369) -> tuple[Tensor, Tensor, Tensor]:
    known = torch.randn(batch_size, HOURS, KNOWN)
    return torch.randint(ids, (batch_size,)), known, torch.randn(batch_size, HOURS, 1)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    names, known, target = batch
    difference = model(names, known, target) - target[:, PAST:]
    quantiles = torch.tensor(QUANTILES, device=difference.device)
    losses = (1 - quantiles) * F.relu(difference) + quantiles * F.relu(-difference)
    return losses.flatten(0, 1).mean(0).sum()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-3)


class GLU(nn.Module):
    def __init__(self, hidden: int, outputs: int):
        super().__init__()
        self.linear = nn.Linear(hidden, 2 * outputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(self.linear(x))


class GRN(nn.Module):
    """Gated residual network, with a context added in where there is one."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int = 0,
        context: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.norm = nn.Identity() if outputs == 1 else nn.LayerNorm(outputs or hidden, eps=1e-3)
        self.first = nn.Linear(inputs, hidden)
        self.context = nn.Linear(hidden, hidden, bias=False) if context else None
        self.inner = nn.Linear(hidden, hidden)
        self.gate = GLU(hidden, outputs or hidden)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(inputs, outputs) if outputs else None

    def forward(self, a: Tensor, c: Tensor | None = None) -> Tensor:
        x = self.first(a)
        if c is not None and self.context is not None:
            x = x + self.context(c).unsqueeze(1)
        x = self.gate(self.dropout(self.inner(F.elu(x))))
        return self.norm(x + (a if self.out is None else self.out(a)))


class Selection(nn.Module):
    """Variables weighted by a softmax; (..., variables, hidden) in, (..., hidden) out."""

    def __init__(self, variables: int, hidden: int, dropout: float):
        super().__init__()
        self.joint = GRN(hidden * variables, hidden, variables, context=True)
        self.each = nn.ModuleList(GRN(hidden, hidden, dropout=dropout) for _ in range(variables))

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        weights = F.softmax(self.joint(x.flatten(-2), context), dim=-1)
        made = torch.stack([one(x[..., i, :]) for i, one in enumerate(self.each)], dim=-1)
        return torch.matmul(made, weights.unsqueeze(-1)).squeeze(-1)


class Attention(nn.Module):
    mask: Tensor

    def __init__(self, hidden: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.width = heads, hidden // heads
        self.qkv = nn.Linear(hidden, (2 * heads + 1) * self.width, bias=False)
        self.out = nn.Linear(self.width, hidden, bias=False)
        self.dropout = nn.Dropout(dropout)
        mask = torch.full((HOURS, HOURS), float("-inf")).triu(1)
        self.register_buffer("mask", mask.unsqueeze(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.heads * self.width
        query, key, value = self.qkv(x).split((wide, wide, self.width), dim=-1)
        query = query.unflatten(-1, (self.heads, self.width)).permute(0, 2, 1, 3)
        key = key.unflatten(-1, (self.heads, self.width)).permute(0, 2, 3, 1)
        scores = torch.matmul(query, key)
        scores = scores.mul_(self.width**-0.5) + self.mask
        mixed = torch.matmul(F.softmax(scores, dim=3), value.unsqueeze(1))
        return self.dropout(self.out(mixed.mean(dim=1)))


class Forecaster(nn.Module):
    def __init__(self, ids: int, hidden: int, heads: int, dropout: float):
        super().__init__()
        self.names = nn.Embedding(ids, hidden)
        self.known = nn.Parameter(torch.randn(KNOWN, hidden) * 0.1)
        self.known_bias = nn.Parameter(torch.zeros(KNOWN, hidden))
        self.target = nn.Parameter(torch.randn(1, hidden) * 0.1)
        self.target_bias = nn.Parameter(torch.zeros(1, hidden))
        self.static = Selection(1, hidden, dropout)
        self.contexts = nn.ModuleList(GRN(hidden, hidden, dropout=dropout) for _ in range(4))
        self.past_selection = Selection(KNOWN + 1, hidden, dropout)
        self.past = nn.LSTM(hidden, hidden, batch_first=True)
        self.future_selection = Selection(KNOWN, hidden, dropout)
        self.future = nn.LSTM(hidden, hidden, batch_first=True)
        self.input_gate, self.input_norm = GLU(hidden, hidden), nn.LayerNorm(hidden, eps=1e-3)
        self.enrichment = GRN(hidden, hidden, context=True, dropout=dropout)
        self.attention = Attention(hidden, heads, dropout)
        self.attention_gate = GLU(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden, eps=1e-3)
        self.position = GRN(hidden, hidden, dropout=dropout)
        self.last_gate, self.last_norm = GLU(hidden, hidden), nn.LayerNorm(hidden, eps=1e-3)
        self.quantiles = nn.Linear(hidden, len(QUANTILES))

    def forward(self, names: Tensor, known: Tensor, target: Tensor) -> Tensor:
        static = self.static(self.names(names).unsqueeze(-2))
        chosen, enriching, state, cell = (one(static) for one in self.contexts)
        known = known.unsqueeze(-1) * self.known + self.known_bias
        target = target.unsqueeze(3) * self.target + self.target_bias
        history = torch.cat((known[:, :PAST], target[:, :PAST]), dim=-2)
        past_seen = self.past_selection(history, chosen)
        past, states = self.past(past_seen, (state.unsqueeze(0), cell.unsqueeze(0)))
        future_seen = self.future_selection(known[:, PAST:], chosen)
        future, _ = self.future(future_seen, states)
        seen = torch.cat((past_seen, future_seen), dim=1)
        x = self.input_norm(self.input_gate(torch.cat((past, future), dim=1)) + seen)
        rich = self.enrichment(x, enriching)
        mixed = self.attention(rich)[:, PAST:]
        x, rich = x[:, PAST:], rich[:, PAST:]
        mixed = self.position(self.attention_norm(self.attention_gate(mixed) + rich))
        return self.quantiles(self.last_norm(self.last_gate(mixed) + x))
