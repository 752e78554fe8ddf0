"""GPT as Megatron-LM's pretrain_gpt.py builds it, dropouts among the rest (0.1 unless told
otherwise): of the embedding, of both branches and, in attention, of its weights.

`biases` and `norm` follow --disable-bias-linear and --normalization, `rotary` the positions' kind.
`attention="eager"` writes attention out with the fused softmax of `--transformer-impl local`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 24,
    hidden: int = 1024,
    heads: int = 16,
    kv_heads: int = 16,
    ffn: int = 4096,
    ffn_kind: str = "gelu",
    vocab: int = 50304,
    seq_len: int = 1024,
    tied_embeddings: bool = True,
    attention: str = "fused",
    dropout: float = 0.1,
    biases: bool = True,
    norm: str = "layer",
    rotary: bool = False,
    qk_norm: bool = False,
) -> nn.Module:
    def make_norm(width: int) -> nn.Module:
        return nn.LayerNorm(width) if norm == "layer" else nn.RMSNorm(width, eps=1e-5)

    blocks = [
        Block(
            make_norm(hidden),
            Attention(hidden, heads, kv_heads, attention == "fused", dropout, biases, qk_norm),
            make_norm(hidden),
            FeedForward(hidden, ffn, ffn_kind, biases),
            dropout,
        )
        for _ in range(layers)
    ]
    places = None if rotary else seq_len
    table = rotary_table(seq_len, hidden // heads) if rotary else None
    return GPT(blocks, make_norm(hidden), hidden, vocab, places, table, tied_embeddings, dropout)


def make_batch(batch_size: int, vocab: int = 50304, seq_len: int = 1024) -> tuple[Tensor, Tensor]:
    return torch.randint(vocab, (batch_size, seq_len)), torch.randint(vocab, (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    logits = model(batch[0]).float()
    return F.cross_entropy(logits.flatten(0, 1), batch[1].flatten())


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-4)


def TOKENS_PER_SAMPLE(seq_len: int = 1024) -> int:
    return seq_len


class GPT(nn.Module):
    rotary: Tensor | None

    def __init__(
        self,
        blocks: list["Block"],
        norm: nn.Module,
        hidden: int,
        vocab: int,
        places: int | None,
        rotary: Tensor | None,
        tied: bool,
        dropout: float,
    ):
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.places = nn.Embedding(places, hidden) if places else None
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm
        self.head = nn.Linear(hidden, vocab, bias=False)
        if tied:
            self.head.weight = self.words.weight
        self.register_buffer("rotary", rotary, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        if self.places is not None:
            x = x + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x, self.rotary)
        return self.head(self.norm(x))


class Block(nn.Module):
    def __init__(
        self,
        attention_norm: nn.Module,
        attention: nn.Module,
        ffn_norm: nn.Module,
        ffn: nn.Module,
        dropout: float,
    ):
        super().__init__()
        self.attention_norm, self.attention = attention_norm, attention
        self.ffn_norm, self.ffn = ffn_norm, ffn
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, rotary: Tensor | None) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), rotary))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))


class Attention(nn.Module):
    def __init__(
        self,
        hidden: int,
        heads: int,
        kv_heads: int,
        fused: bool,
        dropout: float,
        biases: bool,
        qk_norm: bool,
    ):
        super().__init__()
        self.width, self.split = hidden // heads, (heads, kv_heads, kv_heads)
        self.fused, self.dropout = fused, dropout
        self.qkv = nn.Linear(hidden, sum(self.split) * self.width, bias=biases)
        self.query_norm = nn.RMSNorm(self.width) if qk_norm else nn.Identity()
        self.key_norm = nn.RMSNorm(self.width) if qk_norm else nn.Identity()
        self.out = nn.Linear(hidden, hidden, bias=biases)

    def forward(self, x: Tensor, rotary: Tensor | None) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (-1, self.width)).transpose(1, 2)
        query, key, value = qkv.split(self.split, dim=1)
        query, key = self.query_norm(query), self.key_norm(key)
        if rotary is not None:
            query, key = rotate(query, rotary), rotate(key, rotary)
        dropout = self.dropout if self.training else 0.0
        if self.fused:
            grouped = query.shape[1] != key.shape[1]
            mixed = F.scaled_dot_product_attention(
                query, key, value, dropout_p=dropout, is_causal=True, enable_gqa=grouped
            )
        else:
            length = query.shape[2]
            visible = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            scores = (query * self.width**-0.5) @ key.transpose(-2, -1)
            # In place and in the dtype of the scores, as in Megatron's masked softmax kernel.
            scores = scores.masked_fill_(~visible, float("-inf"))
            mixed = F.dropout(scores.softmax(dim=-1, dtype=scores.dtype), dropout) @ value
        return self.out(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, hidden: int, ffn: int, ffn_kind: str, biases: bool):
        super().__init__()
        self.gate = nn.Linear(hidden, ffn, bias=biases) if ffn_kind == "swiglu" else None
        self.up = nn.Linear(hidden, ffn, bias=biases)
        self.down = nn.Linear(ffn, hidden, bias=biases)
        self.squared = ffn_kind == "relu2"

    def forward(self, x: Tensor) -> Tensor:
        inner = self.up(x)
        if self.gate is not None:
            return self.down(F.silu(self.gate(x)) * inner)
        if self.squared:
            return self.down(F.relu(inner).square())
        return self.down(F.gelu(inner, approximate="tanh"))


def rotary_table(length: int, width: int) -> Tensor:
    rates = 10_000 ** (-torch.arange(0, width, 2).float() / width)
    angles = torch.outer(torch.arange(length).float(), rates).repeat(1, 2)
    return torch.stack((angles.cos(), angles.sin()))


def rotate(x: Tensor, rotary: Tensor) -> Tensor:
    cos, sin = rotary[:, : x.shape[2]].to(x.dtype).unbind()
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
