"""Reading curve files: what was measured on one accelerator (format: docs/curves.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ...catalog.errors import UsageError, UserFileError, did_you_mean

CURVES_DIR = Path(__file__).parents[1] / "data" / "curves"
CURVE_SCHEMA_VERSION = 1
Array = np.ndarray


@dataclass(frozen=True, eq=False)
class GemmGrid:
    """Kernel times on a full grid of m, n, k, for one dtype; compared by identity."""

    m: Array
    n: Array
    k: Array
    log_time: Array
    """Natural logarithm of seconds, shape (m, n, k)."""
    relative_error: float
    """Held-out error of interpolating between grid points (one sigma)."""


@dataclass(frozen=True)
class TileModel:
    """Constants of the tile-and-wave form of a matrix kernel, for one dtype and operation."""

    efficiency: float
    """Share of the dense peak that a large, well-shaped kernel reaches."""
    tile: float
    """Edge of the square output tile that one compute unit works on."""
    k_half: float
    """Depth of the contraction at which half of the time is spent filling the pipeline."""
    wave_exponent: float
    """0: partly filled tiles and last waves cost nothing; 1: they cost as much as full ones."""
    relative_error: float


@dataclass(frozen=True, eq=False)
class AttentionGrid:
    """Fused causal attention, forward, for one head dimension; compared by identity."""

    head_dim: int
    batch_heads: Array
    seq: Array
    group: Array
    """Query heads per key-value head."""
    log_time: Array
    """Natural logarithm of seconds, shape (batch_heads, seq, group)."""


@dataclass(frozen=True)
class MemoryFraction:
    """Share of the datasheet bandwidth that a kind of streaming kernel reaches on large tensors."""

    fraction: float
    relative_error: float


@dataclass(frozen=True)
class ConvolutionFacts:
    """How convolutions on tensor cores compare with matrix products, for one dtype."""

    share_of_gemm: float
    """Rate of convolutions of many channels over that of a large matrix product."""
    backward_slowdown: float
    """Backward time over what the forward's rate gives."""
    relative_error: float


@dataclass(frozen=True)
class CollectiveTable:
    """Times of one collective among `ranks` accelerators of one node."""

    ranks: int
    size_bytes: Array
    """Total buffer: gathered output of all_gather, input of the others."""
    log_time: Array


@dataclass(frozen=True)
class CurveFile:
    """Everything measured on one accelerator; a part that was not measured is empty."""

    accelerator: str
    version: str
    sources: tuple[str, ...]
    kernel_floor_s: float | None
    gemm_grids: dict[str, GemmGrid]
    """Measured products by dtype."""
    tile_models: dict[str, dict[str, TileModel]]
    """Models of tiles by dtype, then by "linear", "batched" or "conv"."""
    attention_grids: dict[str, tuple[AttentionGrid, ...]]
    """Measured attention by dtype, in order of head dimension."""
    attention_error: float | None
    attention_backward_grids: dict[str, tuple[AttentionGrid, ...]]
    """As `attention_grids`; a dtype that is missing takes a multiple of its forward."""
    attention_backward_error: float | None
    convolutions: dict[str, ConvolutionFacts]
    """Measured convolutions by dtype."""
    memory: dict[str, MemoryFraction]
    """Fraction of the memory bandwidth that a kernel reaches, by kind of kernel."""
    collectives: dict[str, tuple[CollectiveTable, ...]]
    collective_error: float | None
    path: Path
    """The file itself."""

    def over(self, embedded: CurveFile) -> CurveFile:
        """Return these curves, with the parts of another file that this one does not have."""

        def either(name: str) -> Any:
            own, other = getattr(self, name), getattr(embedded, name)
            if isinstance(own, dict):
                return {**other, **own}
            return other if own is None else own

        parts = (
            "kernel_floor_s",
            "gemm_grids",
            "tile_models",
            "attention_grids",
            "attention_error",
            "convolutions",
            "memory",
            "collectives",
            "collective_error",
        )
        return replace(self, **{name: either(name) for name in parts})


@lru_cache(maxsize=1)
def measured_accelerators() -> tuple[str, ...]:
    """Return the names of the accelerators that have a curve file, sorted."""
    return tuple(sorted(p.stem for p in CURVES_DIR.glob("*.json") if not p.stem.startswith("_")))


@lru_cache(maxsize=64)
def embedded_curve_file(accelerator: str) -> CurveFile:
    """Return the embedded curve file of a measured accelerator.

    Raises:
        UsageError: No curve file has this name.
    """
    known = measured_accelerators()
    if accelerator not in known:
        raise UsageError(
            f"No measured curves for {accelerator!r}.{did_you_mean(accelerator, known)}",
            fix=f"use one of {', '.join(known)}",
        )
    return read_curve_file(CURVES_DIR / f"{accelerator}.json")


def read_curve_file(path: Path) -> CurveFile:
    """Return the curves in a file.

    Raises:
        UserFileError: The file is not a curve file that this version understands.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["schema_version"] != CURVE_SCHEMA_VERSION:
            raise ValueError(f"schema_version {raw['schema_version']!r}")
        return parsed_curves(raw, path)
    except json.JSONDecodeError as error:
        raise UserFileError(
            f"{path.name} is not a curve file: it is not JSON.",
            fix="give a file that gpuplan calibrate wrote.",
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise UserFileError(
            f"{path.name} is not a curve file of schema {CURVE_SCHEMA_VERSION}: {reason}.",
            fix="see docs/curves.md for the form.",
        ) from error


@lru_cache(maxsize=8)
def shared_table(name: str) -> dict:
    """Return a table that all devices share (`_relations`, `_errors`, `_network`), as JSON."""
    return json.loads((CURVES_DIR / f"{name}.json").read_text(encoding="utf-8"))


def parsed_curves(raw: dict, path: Path) -> CurveFile:
    """Return the curves of a file's JSON."""
    floor_us = raw.get("kernel_floor_us")
    attention = raw.get("attention_forward", {})
    backward = raw.get("attention_backward", {})
    collectives = raw.get("collectives", {})
    return CurveFile(
        accelerator=raw["accelerator"],
        version=raw["version"],
        sources=tuple(raw["sources"]),
        kernel_floor_s=None if floor_us is None else floor_us * 1e-6,
        gemm_grids={d: _gemm_grid(g) for d, g in raw.get("gemm_grids", {}).items()},
        tile_models={
            dtype: {op: TileModel(**constants) for op, constants in by_op.items()}
            for dtype, by_op in raw.get("tile_models", {}).items()
        },
        attention_grids=_attention_grids(attention),
        attention_error=attention.get("relative_error"),
        attention_backward_grids=_attention_grids(backward),
        attention_backward_error=backward.get("relative_error"),
        convolutions={d: ConvolutionFacts(**c) for d, c in raw.get("convolutions", {}).items()},
        memory={k: MemoryFraction(**v) for k, v in raw.get("memory", {}).items()},
        collectives={
            kind: tuple(_collective(t) for t in tables)
            for kind, tables in collectives.get("tables", {}).items()
        },
        collective_error=collectives.get("relative_error"),
        path=path,
    )


def _gemm_grid(raw: dict) -> GemmGrid:
    m, n, k = (np.asarray(raw[axis], dtype=float) for axis in "mnk")
    times = _log_seconds(raw["time_us"]).reshape(len(m), len(n), len(k))
    return GemmGrid(m, n, k, _no_slower_than_larger(times), raw["relative_error"])


def _no_slower_than_larger(times: Array) -> Array:
    """Return times of products none of which is slower than a larger one it can be padded to.

    Libraries choose a bad kernel for some sizes: 4 to 10 % of the measured ones are slower than a
    larger one, 1 % by more than a tenth.
    """
    for axis in range(times.ndim):
        backwards = np.flip(times, axis)
        times = np.flip(np.minimum.accumulate(backwards, axis), axis)
    return times


def _attention_grids(raw: dict) -> dict[str, tuple[AttentionGrid, ...]]:
    prepared_s = raw.get("preparation_ns_per_element", 0.0) * 1e-9
    return {
        dtype: tuple(_attention_grid(grid, prepared_s) for grid in grids)
        for dtype, grids in raw.get("grids", {}).items()
    }


def _attention_grid(raw: dict, prepared_s: float) -> AttentionGrid:
    """Return a grid of the kernel alone: without the preparation that was measured with it."""
    heads, seq, group = (
        np.asarray(raw[axis], dtype=float) for axis in ("batch_heads", "seq", "group")
    )
    times = np.exp(_log_seconds(raw["time_us"])).reshape(len(heads), len(seq), len(group))
    rows = heads[:, None, None] * seq[:, None]
    elements = rows * raw["head_dim"] * (1 + 2 / group)
    alone = np.maximum(times - prepared_s * elements, _LEAST_KERNEL_SHARE * times)
    alone = np.minimum(_no_faster_than_longest(alone, seq), times)
    # Repeats of heads that share keys scatter: more tokens never take less time.
    alone = np.flip(np.minimum.accumulate(np.flip(alone, axis=1), axis=1), axis=1)
    return AttentionGrid(raw["head_dim"], heads, seq, group, np.log(alone))


def _no_faster_than_longest(times: Array, seq: Array) -> Array:
    """Return times of causal attention, none shorter a score than that of the longest sequences.

    What is prepared for short ones fits in the cache and takes less than is subtracted: a card's
    kernels of 1,024 tokens would run at 1.7 times the rate of those of 16,384. Of few tokens a
    causal kernel also computes more that is masked (`MASKED_START`).

    Args:
        times: [heads, sequences, groups] seconds.
        seq: tokens of each sequence, ascending.
    """
    tokens = seq[:, None]
    by_score = times / (tokens**2 * (1 + MASKED_START / tokens))
    longest = by_score[:, seq >= seq[-1] / 4].min(axis=1, keepdims=True)
    return times * np.maximum(longest / by_score, 1.0)


MASKED_START = 256.0
"""Tokens of causal attention that cost as if they were twice as many: against half of attention
without a mask the kernel takes 1 + 256 / tokens times as long (medians of both forms of
FlashAttention-2 to 4 and cuDNN on A100, H100, B200, GB200, GB300)."""
_LEAST_KERNEL_SHARE = 0.4
"""Least fraction of a measured time that is the attention kernel itself, without preparation."""


def _collective(raw: dict) -> CollectiveTable:
    size_bytes = np.asarray(raw["size_bytes"], dtype=float)
    return CollectiveTable(raw["ranks"], size_bytes, _log_seconds(raw["time_us"]))


def _log_seconds(time_us: list[float]) -> Array:
    times = np.asarray(time_us, dtype=float) * 1e-6
    if not np.all(times > 0):
        raise ValueError("a time is not positive")
    return np.log(times)
