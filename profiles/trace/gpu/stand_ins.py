"""What a trace runs in the place of FlashAttention, xFormers and apex where they are missing.

Attention is the fused kernel that torch has, which does the same work, and norms are torch's own.
`packages.py` says when.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from . import flex


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1),
    *_: Any,
    return_attn_probs: bool = False,
    **__: Any,
) -> Any:
    """Attend as `flash_attn_func` does.

    Args:
        q: [batch, tokens, heads, head_dim]
        k: [batch, keys, key_heads, head_dim]
        v: as `k`.
        dropout_p: not counted: the kernel draws it as it goes.
        softmax_scale: of the scores; None: of heads of this width.
        causal: whether a query sees the keys up to its own alone.
        window_size: keys that a query sees to the left and right; negative or None: all.
        return_attn_probs: whether statistics are returned as well.
    """
    kept = _window(q.shape[1], k.shape[1], causal, window_size)
    query, key, value = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    out, of_rows, _rows = flex.attend(_attend, kept, query, key, value, None, scale)
    out = out.transpose(1, 2)
    return (out, of_rows, None) if return_attn_probs else out


def _attend(
    _: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **named: Any
) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, **named)


def _window(
    tokens: int, keys: int, causal: bool, window: tuple[int | None, int | None]
) -> flex.KeptBlocks:
    left, right = (None if one is None or one < 0 else one for one in window)
    right = 0 if causal else right
    if left is None and right in (0, None):
        return flex.KeptBlocks(1.0, causal=right == 0)

    def seen(_batch: Any, _head: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        ahead = key - query - (keys - tokens)
        inside = ahead >= -keys if left is None else ahead >= -left
        return inside if right is None else inside & (ahead <= right)

    return flex.kept_blocks(seen, tokens, keys, (flex.BLOCK, flex.BLOCK))


def _qkv_packed(qkv: torch.Tensor, *settings: Any, **named: Any) -> Any:
    """Attend with queries, keys and values in one tensor [batch, tokens, 3, heads, head_dim]."""
    q, k, v = qkv.unbind(2)
    return flash_attention(q, k, v, *settings, **named)


def _kv_packed(q: torch.Tensor, kv: torch.Tensor, *settings: Any, **named: Any) -> Any:
    """Attend with keys and values in one tensor [batch, keys, 2, heads, head_dim]."""
    k, v = kv.unbind(2)
    return flash_attention(q, k, v, *settings, **named)


def _of_unequal_lengths(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *settings: Any,
    **named: Any,
) -> Any:
    """Attend over sequences laid end to end [tokens, heads, head_dim], each as if the longest."""
    queries, keys = _in_rows(q, max_seqlen_q), _in_rows(k, max_seqlen_k)
    out = flash_attention(queries, keys, _in_rows(v, max_seqlen_k), *settings, **named)
    if isinstance(out, tuple):
        return (out[0].flatten(0, 1)[: len(q)], *out[1:])
    return out.flatten(0, 1)[: len(q)]


def _in_rows(packed: torch.Tensor, longest: int) -> torch.Tensor:
    longest = max(1, min(int(longest), len(packed)))
    missing = math.ceil(len(packed) / longest) * longest - len(packed)
    padded = F.pad(packed, (0, 0, 0, 0, 0, missing)) if missing else packed
    return padded.unflatten(0, (-1, longest))


class LowerTriangularMask:
    """What xFormers calls a causal mask."""

    def make_local_attention(self, window_size: int) -> LowerTriangularMask:
        """Return the mask of the keys from `window_size` - 1 before a query to its own."""
        local = LowerTriangularMask()
        local.window = (window_size - 1, 0)
        return local

    window: tuple[int | None, int | None] = (None, 0)
    """Keys that a query sees to the left and right; None: all."""


class BlockDiagonalMask:
    """What xFormers calls several sequences laid end to end, each of which sees itself alone."""

    window: tuple[int | None, int | None] = (None, None)

    def __init__(self, queries: Sequence[int], keys: Sequence[int]) -> None:
        """Keep how many queries and keys each sequence has."""
        self.queries, self.keys = tuple(queries), tuple(keys)

    @classmethod
    def from_seqlens(
        cls, q_seqlen: Sequence[int], kv_seqlen: Sequence[int] | None = None, **_: Any
    ) -> BlockDiagonalMask:
        """Return the mask of sequences of these lengths."""
        return cls(q_seqlen, q_seqlen if kv_seqlen is None else kv_seqlen)

    def make_causal(self) -> BlockDiagonalMask:
        """Return the mask of queries that see the keys up to their own."""
        return BlockDiagonalCausalMask(self.queries, self.keys)

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None
    ) -> torch.Tensor:
        """Attend in [1, tokens, heads, head_dim], neighbours of one length in one call."""
        outs: list[torch.Tensor] = []
        done = seen = 0
        for (tokens, keys), run in groupby(zip(self.queries, self.keys, strict=True)):
            count = len(list(run))
            q, k, v = (
                one[0, at : at + count * length].unflatten(0, (count, length))
                for one, at, length in (
                    (query, done, tokens), (key, seen, keys), (value, seen, keys)
                )
            )  # fmt: skip
            out = flash_attention(q, k, v, 0.0, scale, window_size=self.window)
            outs.append(out.flatten(0, 1))
            done, seen = done + count * tokens, seen + count * keys
        return torch.cat(outs).unsqueeze(0)


class BlockDiagonalCausalMask(BlockDiagonalMask):
    """As BlockDiagonalMask, where a query sees the keys up to its own."""

    window: tuple[int | None, int | None] = (None, 0)


def memory_efficient_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: Any = None,
    p: float = 0.0,
    scale: float | None = None,
    **_: Any,
) -> torch.Tensor:
    """Attend as xFormers does.

    Args:
        query: [batch, tokens, heads, head_dim], or without heads.
        key: [batch, keys, heads, head_dim], or without heads.
        value: as `key`.
        attn_bias: None, one of the masks above, or a tensor that is added to the scores.
        p: not counted: the kernel draws dropout as it goes.
        scale: of the scores; None: of heads of this width.
    """
    if query.dim() == 3:
        q, k, v = query.unsqueeze(2), key.unsqueeze(2), value.unsqueeze(2)
        return memory_efficient_attention(q, k, v, attn_bias, p, scale).squeeze(2)
    if isinstance(attn_bias, BlockDiagonalMask):
        return attn_bias.attend(query, key, value, scale)
    if isinstance(attn_bias, torch.Tensor):
        q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_bias, scale=scale)
        return out.transpose(1, 2)
    window = attn_bias.window if isinstance(attn_bias, LowerTriangularMask) else (None, None)
    return flash_attention(query, key, value, p, scale, window_size=window)


class FusedLayerNorm(nn.LayerNorm):
    """apex's norm in one kernel, as torch's is."""

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, **_: Any
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)


class FusedRMSNorm(nn.RMSNorm):
    """apex's norm in one kernel, as torch's is."""

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, **_: Any
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)


class FusedAdam(torch.optim.AdamW):
    """apex's Adam, which decays weights as AdamW does unless told otherwise."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        **_: Any,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


_FLASH: Mapping[str, Any] = {
    "flash_attn_func": flash_attention,
    "flash_attn_qkvpacked_func": _qkv_packed,
    "flash_attn_kvpacked_func": _kv_packed,
    "flash_attn_varlen_func": _of_unequal_lengths,
}
_XFORMERS: Mapping[str, Any] = {
    "memory_efficient_attention": memory_efficient_attention,
    "LowerTriangularMask": LowerTriangularMask,
    "unbind": torch.unbind,
}
_MASKS: Mapping[str, Any] = {
    "LowerTriangularMask": LowerTriangularMask,
    "LowerTriangularFromBottomRightMask": LowerTriangularMask,
    "BlockDiagonalMask": BlockDiagonalMask,
    "BlockDiagonalCausalMask": BlockDiagonalCausalMask,
}
_APEX: Mapping[str, Any] = {
    "FusedLayerNorm": FusedLayerNorm,
    "FusedRMSNorm": FusedRMSNorm,
    "MixedFusedLayerNorm": FusedLayerNorm,
    "MixedFusedRMSNorm": FusedRMSNorm,
}
MODULES: Mapping[str, Mapping[str, Any]] = {
    "flash_attn": _FLASH,
    "flash_attn.flash_attn_interface": _FLASH,
    "flash_attn_interface": _FLASH,
    "xformers": {},
    "xformers.ops": _XFORMERS,
    "xformers.ops.fmha": {**_XFORMERS, **_MASKS},
    "xformers.ops.fmha.attn_bias": _MASKS,
    "apex": {},
    "apex.normalization": _APEX,
    "apex.optimizers": {"FusedAdam": FusedAdam},
}
"""What each module has in the place of the real one."""
