"""Llama as transformers runs it with PEFT, its embedding and head trained beside the adapters.

`llama_adapters.py` with `lora_modules_to_save: ["lm_head", "embed_tokens"]` (philschmid,
fine-tune-llms-in-2025): PEFT trains copies of both, the frozen originals stay. Llama-3.1-8B by
default; 1,092,616,192 parameters trained with rank 16.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 32,
    hidden: int = 4096,
    heads: int = 32,
    kv_heads: int = 8,
    ffn: int = 14336,
    vocab: int = 128256,
    seq_len: int = 1024,
    tied: bool = False,
    targets: str = "query,key,value,out,gate,up,down",
    rank: int = 16,
    dropout: float = 0.0,
    padded: bool = False,
    head_dim: int = 0,
    wide: bool = False,
    upcast: bool = True,
) -> nn.Module:
    width = head_dim or hidden // heads
    model = Llama(layers, hidden, heads, kv_heads, ffn, vocab, seq_len, tied, padded, width)
    model.upcast = upcast
    if targets == "norms":
        for name, weight in model.named_parameters():
            weight.requires_grad_("norm" in name)
    elif targets:
        model.requires_grad_(False)
        for module in list(model.modules()):
            for name, child in list(module.named_children()):
                if name in targets.split(",") and isinstance(child, nn.Linear):
                    setattr(module, name, Adapter(child, rank, dropout, wide))
    model.frozen_words = nn.Embedding(vocab, hidden).requires_grad_(False)
    model.frozen_head = nn.Linear(hidden, vocab, bias=False).requires_grad_(False)
    for name, weight in model.named_parameters():
        if weight.shape == (vocab, hidden) and not name.startswith("frozen"):
            weight.requires_grad_(True)
    return model


def make_batch(batch_size: int, vocab: int = 128256, seq_len: int = 1024) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len))
    return tokens, torch.randint(vocab, (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    logits = model(batch[0])
    shifted = logits[:, :-1].contiguous()
    return F.cross_entropy(shifted.flatten(0, 1), batch[1][:, 1:].reshape(-1))


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW([one for one in parameters if one.requires_grad], lr=1e-4)


def TOKENS_PER_SAMPLE(seq_len: int = 1024) -> int:
    return seq_len


class Adapter(nn.Module):
    """A frozen layer beside a trained product of two thin ones (peft.tuners.lora.Linear).

    `wide`: PEFT since 0.12 keeps adapters of a 16-bit model in fp32 and multiplies in it.
    """

    def __init__(self, base: nn.Linear, rank: int, dropout: float, wide: bool):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.scale, self.wide = 2.0, wide

    def forward(self, x: Tensor) -> Tensor:
        if self.wide:
            thin = F.linear(self.dropout(x.float()), self.down.weight.float())
            thin = F.linear(thin, self.up.weight.float()) * self.scale
            return (self.base(x) + thin).to(x.dtype)
        return self.base(x) + self.up(self.down(self.dropout(x))) * self.scale


class Norm(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        dtype, x = x.dtype, x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * x.to(dtype)


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int, width: int, padded: bool):
        super().__init__()
        self.width, self.repeats, self.padded = width, heads // kv_heads, padded
        self.query = nn.Linear(hidden, heads * width, bias=False)
        self.key = nn.Linear(hidden, kv_heads * width, bias=False)
        self.value = nn.Linear(hidden, kv_heads * width, bias=False)
        self.out = nn.Linear(heads * width, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(2, (-1, self.width)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        query = query * cos + turned(query) * sin
        key = key * cos + turned(key) * sin
        if self.repeats > 1:
            key = key.repeat_interleave(self.repeats, dim=1)
            value = value.repeat_interleave(self.repeats, dim=1)
        mask = None
        if self.padded:
            length = x.shape[1]
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            mask = mask[None, None].expand(x.shape[0], 1, length, length)
        mixed = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None
        )
        return self.out(mixed.transpose(1, 2).contiguous().flatten(2))


def turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class FeedForward(nn.Module):
    def __init__(self, hidden: int, ffn: int):
        super().__init__()
        self.gate = nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int, ffn: int, width: int, padded: bool):
        super().__init__()
        self.attention_norm = Norm(hidden)
        self.attention = Attention(hidden, heads, kv_heads, width, padded)
        self.ffn_norm = Norm(hidden)
        self.ffn = FeedForward(hidden, ffn)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.ffn(self.ffn_norm(x))


class Llama(nn.Module):
    """`upcast`: transformers turns the logits into fp32 where it computes the loss itself."""

    upcast: bool

    def __init__(
        self,
        layers: int,
        hidden: int,
        heads: int,
        kv_heads: int,
        ffn: int,
        vocab: int,
        seq_len: int,
        tied: bool,
        padded: bool,
        width: int,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(
            Block(hidden, heads, kv_heads, ffn, width, padded) for _ in range(layers)
        )
        self.norm = Norm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        rates = 10_000 ** (-torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(seq_len).float(), rates).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        logits = self.head(self.norm(x))
        return logits.float() if self.upcast else logits
