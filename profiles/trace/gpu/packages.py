"""Packages that cannot be installed without CUDA: what a trace runs where a file imports one.

FlashAttention, xFormers and apex are built for a GPU, and the machine that plans has none. Where
the import of one fails, a package of the same name takes its place for this process: attention is
the fused kernel that torch has, which does the same work, and norms are torch's own. A package that
is installed is never replaced.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import nn

from ....catalog.errors import UserFileError
from . import flex

Made = TypeVar("Made")

FLASH_OF_TRANSFORMERS = "has been toggled on, but it cannot be used"
"""Of what transformers raises for attn_implementation="flash_attention_2" where there is none."""
CHECK_OF_TRANSFORMERS = "_check_and_adjust_attn_implementation"
"""Its method that takes and returns the name of the attention, since 4.54."""
ASKED_BY_TRANSFORMERS = "the flash_attn that transformers is told to use"


def with_stand_ins(make: Callable[[], Made], notes: list[str]) -> Made:
    """Return what `make` returns, once more from the start for each package that it lacks.

    Args:
        make: runs the user's file.
        notes: gets a sentence for each package that another took the place of.

    Raises:
        ModuleNotFoundError: of a package that nothing stands in for; what else `make` raises.
    """
    while True:
        try:
            return make()
        except ImportError as error:
            package = _lacking(error)
            if package is None or package in _StandIns.provided:
                raise
            if package == ASKED_BY_TRANSFORMERS and not _attend_without_flash():
                raise
            _StandIns.provide(package)
            notes.append(
                f"{package} is not installed here: the trace runs {PACKAGES[package]} in its place"
            )


def _lacking(error: ImportError) -> str | None:
    """Return the package that was not found, and has a stand-in."""
    if FLASH_OF_TRANSFORMERS in str(error):
        return ASKED_BY_TRANSFORMERS
    package = (error.name or "").partition(".")[0]
    return package if isinstance(error, ModuleNotFoundError) and package in PACKAGES else None


def _attend_without_flash() -> bool:
    """Let models of transformers that ask for FlashAttention take torch's own, which it checks."""
    models = sys.modules.get("transformers.modeling_utils")
    base = getattr(models, "PreTrainedModel", None)
    check = getattr(base, CHECK_OF_TRANSFORMERS, None)
    if base is None or check is None:
        return False

    def checked(model: Any, asked: str | None, *settings: Any, **named: Any) -> Any:
        own = "sdpa" if asked and asked.startswith("flash_attention") else asked
        return check(model, own, *settings, **named)

    setattr(base, CHECK_OF_TRANSFORMERS, checked)
    return True


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
    if left is None and (causal or right is None):
        return flex.KeptBlocks(1.0, causal=causal)

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
        attn_bias: None, a causal mask, or a tensor that is added to the scores.
        p: not counted: the kernel draws dropout as it goes.
        scale: of the scores; None: of heads of this width.
    """
    if query.dim() == 3:
        q, k, v = query.unsqueeze(2), key.unsqueeze(2), value.unsqueeze(2)
        return memory_efficient_attention(q, k, v, attn_bias, p, scale).squeeze(2)
    if isinstance(attn_bias, torch.Tensor):
        q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_bias, scale=scale)
        return out.transpose(1, 2)
    causal = isinstance(attn_bias, LowerTriangularMask)
    return flash_attention(query, key, value, p, scale, causal)


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
    "apex": {},
    "apex.normalization": _APEX,
    "apex.optimizers": {"FusedAdam": FusedAdam},
}
"""What each module has in the place of the real one."""
PACKAGES: Mapping[str, str] = {
    "flash_attn": "torch's fused attention",
    "flash_attn_interface": "torch's fused attention",
    "xformers": "torch's fused attention",
    "apex": "torch's own norms and AdamW",
    ASKED_BY_TRANSFORMERS: "torch's fused attention",
}
"""The packages, and what a trace runs where they would run."""


class _StandIns(MetaPathFinder, Loader):
    """Finds the modules of packages that another took the place of in this process."""

    provided: set[str] = set()

    @classmethod
    def provide(cls, package: str) -> None:
        """Let later imports of a package find what stands in for it."""
        if not any(isinstance(one, cls) for one in sys.meta_path):
            sys.meta_path.append(cls())
        cls.provided.add(package)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to load a module that has a stand-in."""
        package = fullname.partition(".")[0]
        if package not in self.provided or fullname not in MODULES:
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in MODULES)
        return ModuleSpec(fullname, self, is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module, which refuses whatever else it is asked for."""
        vars(module).update(MODULES[module.__name__])

        def missing(name: str) -> Any:
            if name.startswith("__") or f"{module.__name__}.{name}" in MODULES:
                raise AttributeError(name)
            package = module.__name__.partition(".")[0]
            raise UserFileError(
                f"{package} is not installed here, and nothing stands in for its {name}.",
                fix=f"for an estimate, write there what {name} does in torch calls of the same"
                f" shapes, or run this where {package} is installed.",
            )

        vars(module)["__getattr__"] = missing
