"""Models of LitGPT as of October 2023, with its LoRA adapters on queries and values.

One matrix makes queries, keys and values; the adapters' outputs are padded with zeros where keys
are. The head runs over 128 positions at a time, and so does the loss. `kind`: "llama" (RMSNorm,
gated feed-forward), "neox" (LayerNorm, attention and feed-forward in parallel), "phi" (the same
behind one norm, with a bias in the head). The defaults are Llama-2-7B.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHUNK = 128


def build_model(
    layers: int = 32,
    hidden: int = 4096,
    heads: int = 32,
    ffn: int = 11008,
    vocab: int = 32000,
    seq_len: int = 1304,
    kind: str = "llama",
    rotary: float = 1.0,
    rank: int = 8,
) -> nn.Module:
    model = GPT(layers, hidden, heads, ffn, vocab, seq_len, kind, rotary, rank)
    for name, weight in model.named_parameters():
        weight.requires_grad_("adapter" in name)
    return model


def make_batch(batch_size: int, vocab: int = 32000, seq_len: int = 1304) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len))
    return tokens, torch.randint(vocab, (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, targets = batch
    logits = model(tokens)
    logits[-1] = logits[-1][:, :-1]
    parts = targets[:, 1:].split(CHUNK, dim=1)
    losses = [
        F.cross_entropy(one.reshape(-1, one.shape[-1]), part.reshape(-1), reduction="none")
        for one, part in zip(logits, parts, strict=True)
    ]
    return torch.cat(losses).mean()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    trained = [one for one in parameters if one.requires_grad]
    return torch.optim.AdamW(trained, lr=3e-4, weight_decay=0.01)


def TOKENS_PER_SAMPLE(seq_len: int = 1304) -> int:
    return seq_len


class RMSNorm(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        mean = torch.mean(x * x, dim=-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(mean + 1e-5))


class AdaptedQKV(nn.Module):
    chosen: Tensor

    def __init__(self, hidden: int, rank: int, bias: bool):
        super().__init__()
        self.base = nn.Linear(hidden, 3 * hidden, bias=bias)
        self.adapter_down = nn.Parameter(torch.zeros(2 * rank, hidden))
        self.adapter_up = nn.Parameter(torch.zeros(2 * hidden, rank))
        self.dropout = nn.Dropout(0.05)
        self.scale = 16 / rank
        chosen = torch.cat((torch.arange(hidden), torch.arange(2 * hidden, 3 * hidden)))
        self.register_buffer("chosen", chosen, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        thin = F.linear(self.dropout(x), self.adapter_down)
        wide = F.conv1d(thin.transpose(-2, -1), self.adapter_up.unsqueeze(-1), groups=2)
        wide = wide.transpose(-2, -1).transpose(0, 1)
        padded = wide.new_zeros(wide.shape[0] * wide.shape[1], self.base.out_features)
        padded = padded.index_copy(1, self.chosen, wide.reshape(len(padded), -1))
        padded = padded.view(*wide.shape[:-1], -1).transpose(0, 1)
        return self.base(x) + padded * self.scale


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, rotated: int, rank: int, bias: bool):
        super().__init__()
        self.heads, self.rotated = heads, rotated
        self.qkv = AdaptedQKV(hidden, rank, bias)
        self.out = nn.Linear(hidden, hidden, bias=bias)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        qkv = self.qkv(x).view(batch, length, self.heads, 3, hidden // self.heads)
        query, key, value = (
            one.reshape(batch, self.heads, length, -1)
            for one in qkv.permute(0, 2, 3, 1, 4).split((1, 1, 1), dim=2)
        )
        query, key = self.turned(query, cos, sin), self.turned(key, cos, sin)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, hidden))

    def turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        part = x[..., : self.rotated]
        half = self.rotated // 2
        other = torch.cat((-part[..., half:], part[..., :half]), dim=-1)
        return torch.cat((part * cos + other * sin, x[..., self.rotated :]), dim=-1)


class FeedForward(nn.Module):
    def __init__(self, hidden: int, ffn: int, kind: str):
        super().__init__()
        self.kind = kind
        bias = kind != "llama"
        self.gate = None if bias else nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=bias)
        self.down = nn.Linear(ffn, hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is not None:
            return self.down(F.silu(self.gate(x)) * self.up(x))
        return self.down(F.gelu(self.up(x), approximate="tanh" if self.kind == "phi" else "none"))


def make_norm(hidden: int, kind: str) -> nn.Module:
    return RMSNorm(hidden) if kind == "llama" else nn.LayerNorm(hidden)


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, ffn: int, kind: str, rotated: int, rank: int):
        super().__init__()
        self.kind = kind
        self.norm1 = make_norm(hidden, kind)
        self.attention = Attention(hidden, heads, rotated, rank, kind != "llama")
        self.norm2 = None if kind == "phi" else make_norm(hidden, kind)
        self.ffn = FeedForward(hidden, ffn, kind)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        normed = self.norm1(x)
        mixed = self.attention(normed, cos, sin)
        if self.kind == "llama":
            x = mixed + x
            return self.ffn(self.norm2(x)) + x  # pyright: ignore[reportOptionalCall]
        return self.ffn(normed if self.norm2 is None else self.norm2(x)) + mixed + x


class GPT(nn.Module):
    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        layers: int,
        hidden: int,
        heads: int,
        ffn: int,
        vocab: int,
        seq_len: int,
        kind: str,
        rotary: float,
        rank: int,
    ):
        super().__init__()
        rotated = int(rotary * (hidden // heads))
        self.words = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(
            Block(hidden, heads, ffn, kind, rotated, rank) for _ in range(layers)
        )
        self.norm = make_norm(hidden, kind)
        self.head = nn.Linear(hidden, vocab, bias=kind == "phi")
        rates = 1.0 / 10_000 ** (torch.arange(0, rotated, 2).float() / rotated)
        angles = torch.outer(torch.arange(seq_len).float(), rates).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens: Tensor) -> list[Tensor]:
        x = self.words(tokens)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return [self.head(part) for part in self.norm(x).split(CHUNK, dim=1)]
