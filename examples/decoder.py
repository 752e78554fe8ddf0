"""Decoder-only language model of any published shape; 8,030,261,248 parameters by default.

The defaults are Llama-3-8B (Meta 2024, `config.json` of the release). The parameters cover the
models of the published run records: GPT-3, BLOOM and MPT (`ffn_kind="gelu"`), Llama, Qwen-3 and
PaLM (`swiglu`), Gemma (`geglu`), Nemotron (`relu2`), mixtures of experts with shared experts and
leading dense layers (Mixtral, Llama-4, DeepSeek-V3), multi-head latent attention (DeepSeek-V3),
norms of queries and keys (`qk_norm`: Qwen-3, Gemma-3) and alternating sliding windows (Gemma-3,
gpt-oss).

- `ffn_kind="gelu"` means LayerNorm, biases and learned positions; every other kind means RMSNorm,
  no biases and rotary positions. `swiglu` and `geglu` have a gate matrix, `gelu` and `relu2` not.
- `attention="eager"` writes out softmax(QK^T) with a mask, as Megatron did in 2020-22;
  `"fused"` calls torch's scaled_dot_product_attention.
- A fused sliding window runs in chunks of `attention_window` queries, each against its own and the
  previous chunk of keys: 2 x window keys per query, whatever `seq_len` is, and a second copy of
  keys and values. A dedicated kernel reads between 1 and 2 windows and copies nothing.
- Experts get equally many tokens each: tokens are sorted by expert and cut into equal groups.
  That is exact for a balanced router and keeps every shape independent of the data. Matrix
  products are those of the `active_experts` (and shared experts) alone.
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
    ffn_kind: str = "swiglu",
    vocab: int = 128256,
    seq_len: int = 8192,
    tied_embeddings: bool = False,
    head_dim: int | None = None,
    attention: str = "fused",
    attention_window: int | None = None,
    attention_global_every: int | None = None,
    attention_kind: str = "grouped",
    qk_norm: bool = False,
    q_lora_rank: int = 1536,
    kv_lora_rank: int = 512,
    qk_nope_head_dim: int = 128,
    qk_rope_head_dim: int = 64,
    v_head_dim: int = 128,
    experts: int = 0,
    active_experts: int = 2,
    shared_experts: int = 0,
    dense_layers: int = 0,
    dense_ffn: int | None = None,
    moe_every: int = 1,
    moe_ffn: int | None = None,
) -> nn.Module:
    check_choice("ffn_kind", ffn_kind, ("gelu", "swiglu", "geglu", "relu2"))
    check_choice("attention", attention, ("fused", "eager"))
    check_choice("attention_kind", attention_kind, ("grouped", "mla"))
    if heads % kv_heads:
        raise ValueError(f"heads ({heads}) must be a multiple of kv_heads ({kv_heads})")
    head_dim = head_dim or hidden // heads

    def attention_core(layer: int) -> nn.Module:
        every = attention_global_every
        window = None if every and (layer + 1) % every == 0 else attention_window
        if attention == "eager":
            return EagerAttention(window)
        return WindowAttention(window) if window and window < seq_len else FusedAttention()

    def attention_layer(layer: int) -> nn.Module:
        core = attention_core(layer)
        if attention_kind == "mla":
            nope, rope = qk_nope_head_dim, qk_rope_head_dim
            return LatentAttention(
                hidden, heads, q_lora_rank, kv_lora_rank, nope, rope, v_head_dim, core
            )
        bias = ffn_kind == "gelu"
        return GroupedAttention(hidden, heads, kv_heads, head_dim, core, bias, qk_norm)

    def ffn_layer(layer: int) -> nn.Module:
        if experts and layer >= dense_layers and (layer + 1) % moe_every == 0:
            return MixtureOfExperts(
                hidden, moe_ffn or ffn, ffn_kind, experts, active_experts, shared_experts
            )
        return FeedForward(hidden, (dense_ffn or ffn) if experts else ffn, ffn_kind)

    blocks = [
        Block(
            make_norm(hidden, ffn_kind),
            attention_layer(i),
            make_norm(hidden, ffn_kind),
            ffn_layer(i),
        )
        for i in range(layers)
    ]
    rotary_dim = qk_rope_head_dim if attention_kind == "mla" else head_dim
    return Decoder(
        blocks,
        make_norm(hidden, ffn_kind),
        hidden,
        vocab,
        seq_len,
        tied_embeddings,
        rotary_dim=None if ffn_kind == "gelu" else rotary_dim,
    )


def make_batch(batch_size: int, vocab: int = 128256, seq_len: int = 8192) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len))
    targets = torch.randint(vocab, (batch_size, seq_len))
    return tokens, targets


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, targets = batch
    logits = model(tokens).float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)


def TOKENS_PER_SAMPLE(seq_len: int = 8192) -> int:
    return seq_len


class Decoder(nn.Module):
    """Token embedding, blocks, norm and head; `rotary_dim` None means learned positions."""

    rotary: Tensor | None

    def __init__(
        self,
        blocks: list["Block"],
        norm: nn.Module,
        hidden: int,
        vocab: int,
        seq_len: int,
        tied_embeddings: bool,
        rotary_dim: int | None,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.positions = nn.Embedding(seq_len, hidden) if rotary_dim is None else None
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm
        self.head = nn.Linear(hidden, vocab, bias=False)
        if tied_embeddings:
            self.head.weight = self.embedding.weight
        rotary = None if rotary_dim is None else rotary_table(seq_len, rotary_dim)
        self.register_buffer("rotary", rotary, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(length, device=tokens.device))
        rotary = None if self.rotary is None else self.rotary[:, :length]
        for block in self.blocks:
            x = block(x, rotary)
        return self.head(self.norm(x))


class Block(nn.Module):
    def __init__(
        self, attention_norm: nn.Module, attention: nn.Module, ffn_norm: nn.Module, ffn: nn.Module
    ):
        super().__init__()
        self.attention_norm = attention_norm
        self.attention = attention
        self.ffn_norm = ffn_norm
        self.ffn = ffn

    def forward(self, x: Tensor, rotary: Tensor | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotary)
        return x + self.ffn(self.ffn_norm(x))


class GroupedAttention(nn.Module):
    """Multi-head attention in which `heads / kv_heads` query heads share keys and values."""

    def __init__(
        self,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        core: nn.Module,
        bias: bool,
        qk_norm: bool,
    ):
        super().__init__()
        self.split = (heads, kv_heads, kv_heads)
        self.head_dim = head_dim
        self.qkv = nn.Linear(hidden, sum(self.split) * head_dim, bias=bias)
        self.query_norm = nn.RMSNorm(head_dim, eps=1e-6) if qk_norm else None
        self.key_norm = nn.RMSNorm(head_dim, eps=1e-6) if qk_norm else None
        self.core = core
        self.out = nn.Linear(heads * head_dim, hidden, bias=bias)

    def forward(self, x: Tensor, rotary: Tensor | None) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        query, key, value = qkv.split(self.split, dim=1)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if rotary is not None:
            query, key = rotate(query, rotary), rotate(key, rotary)
        return self.out(self.core(query, key, value).transpose(1, 2).flatten(2))


class LatentAttention(nn.Module):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1)."""

    def __init__(
        self,
        hidden: int,
        heads: int,
        q_rank: int,
        kv_rank: int,
        nope_dim: int,
        rope_dim: int,
        value_dim: int,
        core: nn.Module,
    ):
        super().__init__()
        self.heads = heads
        self.kv_split = (kv_rank, rope_dim)
        self.query_split = (nope_dim, rope_dim)
        self.key_value_split = (nope_dim, value_dim)
        self.q_down = nn.Linear(hidden, q_rank, bias=False)
        self.q_norm = nn.RMSNorm(q_rank)
        self.q_up = nn.Linear(q_rank, heads * sum(self.query_split), bias=False)
        self.kv_down = nn.Linear(hidden, sum(self.kv_split), bias=False)
        self.kv_norm = nn.RMSNorm(kv_rank)
        self.kv_up = nn.Linear(kv_rank, heads * sum(self.key_value_split), bias=False)
        self.core = core
        self.out = nn.Linear(heads * value_dim, hidden, bias=False)

    def forward(self, x: Tensor, rotary: Tensor) -> Tensor:
        query = self.split_heads(self.q_up(self.q_norm(self.q_down(x))))
        q_nope, q_rope = query.split(self.query_split, dim=-1)
        latent, k_rope = self.kv_down(x).split(self.kv_split, dim=-1)
        k_nope, value = self.split_heads(self.kv_up(self.kv_norm(latent))).split(
            self.key_value_split, dim=-1
        )
        k_rope = rotate(k_rope.unsqueeze(1), rotary).expand(-1, self.heads, -1, -1)
        query = torch.cat((q_nope, rotate(q_rope, rotary)), dim=-1)
        key = torch.cat((k_nope, k_rope), dim=-1)
        return self.out(self.core(query, key, value).transpose(1, 2).flatten(2))

    def split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class FusedAttention(nn.Module):
    """Causal attention in one kernel; (batch, heads, length, dim) in and out."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        grouped = query.shape[1] != key.shape[1]
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)


class WindowAttention(nn.Module):
    """Causal attention over the last `window` keys, in chunks of `window` queries."""

    def __init__(self, window: int):
        super().__init__()
        self.window = window

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        window = self.window
        if query.shape[2] % window:
            raise ValueError(f"seq_len {query.shape[2]} is not a multiple of the window {window}")
        key, value = repeat_heads(key, query), repeat_heads(value, query)
        first = F.scaled_dot_product_attention(
            query[:, :, :window], key[:, :, :window], value[:, :, :window], is_causal=True
        )
        if query.shape[2] == window:
            return first
        # Query i of a chunk sees keys i+1 … i+window of the previous chunk and its own, joined.
        band = torch.ones(window, 2 * window, dtype=torch.bool, device=query.device)
        rest = F.scaled_dot_product_attention(
            self.chunks(query)[:, 1:].flatten(0, 1),
            self.chunk_pairs(key),
            self.chunk_pairs(value),
            attn_mask=band.tril(window).triu(1),
        )
        rest = rest.unflatten(0, (query.shape[0], -1)).transpose(1, 2).flatten(2, 3)
        return torch.cat((first, rest), dim=2)

    def chunks(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (-1, self.window)).transpose(1, 2)

    def chunk_pairs(self, x: Tensor) -> Tensor:
        chunks = self.chunks(x)
        return torch.cat((chunks[:, :-1], chunks[:, 1:]), dim=3).flatten(0, 1)


class EagerAttention(nn.Module):
    """Causal attention as separate kernels: product, mask, softmax, product."""

    def __init__(self, window: int | None):
        super().__init__()
        self.window = window

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        key, value = repeat_heads(key, query), repeat_heads(value, query)
        length = query.shape[2]
        visible = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
        if self.window:
            visible = visible.triu(1 - self.window)
        scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
        # In place and in the dtype of the scores, as in Megatron's masked softmax kernel.
        scores = scores.masked_fill_(~visible, float("-inf"))
        return scores.softmax(dim=-1, dtype=scores.dtype) @ value


class FeedForward(nn.Module):
    def __init__(self, hidden: int, ffn: int, ffn_kind: str):
        super().__init__()
        bias = ffn_kind == "gelu"
        self.gate = nn.Linear(hidden, ffn, bias=False) if is_gated(ffn_kind) else None
        self.up = nn.Linear(hidden, ffn, bias=bias)
        self.down = nn.Linear(ffn, hidden, bias=bias)
        self.ffn_kind = ffn_kind

    def forward(self, x: Tensor) -> Tensor:
        gate = None if self.gate is None else self.gate(x)
        return self.down(activate(self.ffn_kind, self.up(x), gate))


class MixtureOfExperts(nn.Module):
    """Each token through `active` of `experts` feed-forward layers and all `shared` ones."""

    def __init__(
        self, hidden: int, ffn: int, ffn_kind: str, experts: int, active: int, shared: int
    ):
        super().__init__()
        self.active = active
        self.ffn_kind = ffn_kind
        self.router = nn.Linear(hidden, experts, bias=False)
        gated = is_gated(ffn_kind)
        self.gate = nn.Parameter(torch.empty(experts, hidden, ffn)) if gated else None
        self.up = nn.Parameter(torch.empty(experts, hidden, ffn))
        self.down = nn.Parameter(torch.empty(experts, ffn, hidden))
        self.shared = FeedForward(hidden, shared * ffn, ffn_kind) if shared else None
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(dim=-1).topk(self.active)
        order = chosen.flatten().argsort()
        source = order // self.active
        mixed = self.run_experts(tokens[source])
        mixed = mixed * weights.flatten()[order].unsqueeze(1).to(mixed.dtype)
        y = mixed.new_zeros(tokens.shape).index_add(0, source, mixed).view(x.shape)
        return y if self.shared is None else y + self.shared(x)

    def run_experts(self, slots: Tensor) -> Tensor:
        """Run slots, sorted by expert, as equal groups; (slots, hidden) in and out."""
        experts = self.up.shape[0]
        grouped = F.pad(slots, (0, 0, 0, -slots.shape[0] % experts)).unflatten(0, (experts, -1))
        gate = None if self.gate is None else torch.bmm(grouped, self.gate)
        inner = activate(self.ffn_kind, torch.bmm(grouped, self.up), gate)
        return torch.bmm(inner, self.down).flatten(0, 1)[: slots.shape[0]]


def activate(ffn_kind: str, up: Tensor, gate: Tensor | None) -> Tensor:
    if ffn_kind == "relu2":
        return F.relu(up).square()
    inner = up if gate is None else gate
    active = F.silu(inner) if ffn_kind == "swiglu" else F.gelu(inner, approximate="tanh")
    return active if gate is None else active * up


def is_gated(ffn_kind: str) -> bool:
    return ffn_kind in ("swiglu", "geglu")


def make_norm(hidden: int, ffn_kind: str) -> nn.Module:
    return nn.LayerNorm(hidden) if ffn_kind == "gelu" else nn.RMSNorm(hidden, eps=1e-5)


def rotary_table(length: int, dim: int, base: float = 500_000.0) -> Tensor:
    """Return cosines and sines of the rotary angles, (2, length, dim)."""
    frequency = base ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angle = torch.arange(length, dtype=torch.float32).outer(frequency).repeat(1, 2)
    return torch.stack((angle.cos(), angle.sin()))


def rotate(x: Tensor, rotary: Tensor) -> Tensor:
    cos, sin = rotary.to(x.dtype).unbind()
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def repeat_heads(x: Tensor, like: Tensor) -> Tensor:
    """Repeat the heads of `x` up to the number of heads of `like`."""
    repeats = like.shape[1] // x.shape[1]
    return x if repeats == 1 else x.repeat_interleave(repeats, dim=1)


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; allowed: {', '.join(allowed)}")
