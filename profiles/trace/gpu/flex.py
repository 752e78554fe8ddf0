"""torch's flex_attention in a trace: a fused kernel over the blocks of scores that its mask keeps.

Compiled, it is one kernel that leaves out every block in which no position is seen
(arXiv:2412.05496, section 4). What runs in its place is that of `scaled_dot_product_attention`: a
causal mask is that kernel's own; of any other as many keys are attended to as the share of kept
blocks says. What a `score_mod` computes, which stays in registers, is not counted, but what it
reads gets its gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch.overrides import TorchFunctionMode

from ..callers import is_called_by

NAME = "flex_attention"
MODULE = "torch.nn.attention.flex_attention"
BLOCK = 128
"""Of queries and keys: `create_block_mask`'s default. Without a mask the block is the whole."""
LOOKED_AT_BLOCKS, LOOKED_AT_ROWS = 32, 8
"""Of a mask's blocks of queries, and of the rows of each: a mask of 128k by 128k has 17 billion
positions."""

Mask = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
ScoreMod = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor
]


@dataclass(frozen=True)
class KeptBlocks:
    """What a mask leaves of attention."""

    share: float
    """Of its blocks, those in which a position is seen."""
    causal: bool
    reads_data: bool = False
    """Whether the mask looks at values of the device, which were taken as all zero."""
    unknown: str = ""
    """Why the mask could not be asked, where all is kept for that; empty: it was."""

    def said(self, *, compiled: bool) -> str:
        """Return what the trace says of a call with this mask.

        Args:
            compiled: whether the file has torch.compile make the call, so that it is fused.
        """
        over = f"over {100 * self.share:.0f} % of its blocks of scores"
        kept = "causal" if self.causal else over
        known = ", as if all values that the mask reads were equal" if self.reads_data else ""
        if self.unknown:
            known = f", since its mask cannot be computed without data ({self.unknown})"
        fused = f"calls flex_attention: predicted as one fused kernel, {kept}{known}"
        if compiled:
            return fused
        return (
            f"{fused}. Only torch.compile(flex_attention) makes it that; without it every score is"
            " written out"
        )


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what torch.compile makes of `flex_attention`: known as such on the stack."""

    @wraps(function)
    def compiled_call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return compiled_call


def is_compiled() -> bool:
    """Return whether the call that runs is one that was compiled."""
    return is_called_by(__name__, "compiled_call", depth=24)


def attend(
    attention: Callable[..., torch.Tensor],
    kept: KeptBlocks,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: ScoreMod | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (outputs, log-sum-exp, largest scores) of attention over what a mask keeps.

    Args:
        attention: runs what `scaled_dot_product_attention` would, with its arguments.
        kept: what the mask keeps.
        query: [B, heads, tokens, head_dim]
        key: [B, key_heads, keys, head_dim]
        value: [B, key_heads, keys, value_dim]
        score_mod: what it reads, such as learned slopes, gets gradients; None: nothing of the kind.
        scale: of the scores.
    """
    batch, heads, tokens, _ = query.shape
    if not kept.causal:
        seen = min(key.shape[2], max(1, math.ceil(kept.share * key.shape[2] / BLOCK) * BLOCK))
        key, value = key[:, :, :seen], value[:, :, :seen]
    key, value = (one.expand(batch, -1, -1, -1) for one in (key, value))
    if query.dtype not in (torch.float16, torch.bfloat16) and key.shape[1] != heads:
        # It reads heads that share keys in fp32 as well, which torch's other kernels do not.
        key, value = (one.repeat_interleave(heads // one.shape[1], 1) for one in (key, value))
    out = attention(None, query, key, value, is_causal=kept.causal, scale=scale, enable_gqa=True)
    if score_mod is not None:
        out = cast(torch.Tensor, _ReadBeside.apply(out, _changed_score(score_mod, query)))
    of_rows = query.new_empty((batch, heads, tokens), dtype=torch.float32)
    return out, of_rows, of_rows


def reads_what_is_trained(score_mod: ScoreMod, query: torch.Tensor) -> bool:
    """Return whether a changed score depends on something that gets gradients, beside the score."""
    try:
        return _changed_score(score_mod, query).requires_grad
    except Exception:  # As in `kept_blocks`: what the user's function needs may be missing here.
        return False


def _changed_score(score_mod: ScoreMod, query: torch.Tensor) -> torch.Tensor:
    # A tensor without dimensions would be read as a number where it indexes another.
    score, place = query.new_zeros((1,)), query.new_zeros((1,), dtype=torch.int32)
    return score_mod(score, place, place, place, place)


class _ReadBeside(torch.autograd.Function):
    """Passes outputs on; what a kernel read beside its operands gets zeros as its gradient."""

    @staticmethod
    def forward(ctx: Any, out: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(read)
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return gradients[0], torch.zeros_like(ctx.saved_tensors[0])


def kept_blocks(mask: Mask, tokens: int, keys: int, block: tuple[int, int]) -> KeptBlocks:
    """Return what a mask keeps of the first sample's first head; all where it cannot be asked.

    Args:
        mask: as `create_block_mask` takes it.
        tokens: queries.
        keys: keys.
        block: queries and keys of a block.
    """
    if max(block) >= 2**16:  # What stands for "no mask" has one block of any size.
        return KeptBlocks(1.0, causal=False)
    known, asked = _known_of(mask), (tokens, keys, *block)
    try:
        if asked not in known:
            known[asked] = _asked(mask, tokens, keys, block)
        return known[asked]
    except Exception as error:  # The function is the user's: what it needs may be missing here.
        said = str(error).partition("\n")[0]
        why = f"{type(error).__name__}: {said}" if said else type(error).__name__
        return KeptBlocks(1.0, causal=False, unknown=why)


_KNOWN: WeakKeyDictionary[Mask, dict[tuple[int, ...], KeptBlocks]] = WeakKeyDictionary()
"""By mask, whose tensors it may not keep alive: the trace sees when they are freed."""


def _known_of(mask: Mask) -> dict[tuple[int, ...], KeptBlocks]:
    try:
        return _KNOWN.setdefault(mask, {})
    except TypeError:  # An object that cannot be a key, or has no weak references.
        return {}


def _asked(mask: Mask, tokens: int, keys: int, block: tuple[int, int]) -> KeptBlocks:
    rows = _looked_at(tokens, block[0])
    columns = torch.arange(math.ceil(keys / block[1]) * block[1])
    first = torch.zeros((), dtype=torch.int64)
    places = rows.clamp(max=tokens - 1).reshape(-1, 1), columns.clamp(max=keys - 1).reshape(1, -1)
    host = _OnHost()
    with host:
        answer = mask(first, first, *places)
    seen = answer.to(torch.bool).expand(rows.numel(), columns.numel())
    share = _share_of_blocks(seen, rows.shape[0], block[1])
    if host.made_up and not share:
        return KeptBlocks(1.0, causal=False, reads_data=True)
    causal = bool(torch.equal(seen, places[1] <= places[0] + (keys - tokens)))
    return KeptBlocks(share, causal, host.made_up)


def _looked_at(tokens: int, block: int) -> torch.Tensor:
    """Return [blocks, rows] of queries to look at, the ends of each block among them."""
    blocks = math.ceil(tokens / block)
    chosen = torch.linspace(0, blocks - 1, min(blocks, LOOKED_AT_BLOCKS)).round().long()
    within = torch.linspace(0, block - 1, min(block, LOOKED_AT_ROWS)).round().long()
    return chosen.reshape(-1, 1) * block + within


def _share_of_blocks(seen: torch.Tensor, blocks: int, width: int) -> float:
    """Return in how many blocks of [rows, columns] a position is seen, of all."""
    return (
        seen.reshape(blocks, -1, seen.shape[1] // width, width).any(3).any(1).float().mean().item()
    )


class _OnHost(TorchFunctionMode):
    """Runs a mask on the host, with zeros for values that only the device has."""

    made_up = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        known = {name: self._known(one) for name, one in (kwargs or {}).items()}
        return func(*(self._known(one) for one in args), **known)

    def _known(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self._known(one) for one in cast(list[Any], value))
        if not isinstance(value, torch.Tensor) or not value.is_meta:
            return value
        self.made_up = True
        return torch.zeros(value.shape, dtype=value.dtype)
