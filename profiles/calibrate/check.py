"""How good a curve file is: against its own other half, and against the curves without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ...catalog.errors import UsageError, did_you_mean
from ...catalog.snapshot import load_catalogue
from ...catalog.types import Accelerator
from ...catalog.vocabulary import COLLECTIVES
from ..curves.device_curves import DeviceCurves, StreamKind, curves_for
from ..curves.files import (
    Array,
    AttentionGrid,
    CurveFile,
    embedded_curve_file,
    measured_accelerators,
    read_curve_file,
)
from .grids import half_grid_error

_STREAM_BYTES = 2.0**30


@dataclass(frozen=True, kw_only=True)
class CheckRow:
    """One kind of kernel of the file; errors are mean absolute relative ones."""

    part: str
    points: int
    held_out: float | None = None
    """Half of the grid predicted from the other half; None: too few nodes."""
    against: str | None = None
    """The accelerator whose embedded curves it is held against: its own, or its relative."""
    mape: float | None = None
    """Mean absolute percentage error of those curves, as predictions of what the file holds."""
    mape_after_factor: float | None = None
    factor: float | None = None
    """Median of the file's time over the predicted one."""


@dataclass(frozen=True, kw_only=True)
class CurveCheck:
    """What `gpuplan calibrate --check` says."""

    accelerator: str
    path: str
    rows: tuple[CheckRow, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"schema_version": "1.0", **asdict(self)}


def check_curve_file(path: Path, offers: Path | None = None) -> CurveCheck:
    """Return the held-out errors of a curve file, and how far the curves without it are off.

    Raises:
        UserFileError: It is not a curve file.
        UsageError: Its accelerator is not known.
    """
    file = read_curve_file(path)
    catalogue = load_catalogue(offers).accelerators
    if file.accelerator not in catalogue:
        close = did_you_mean(file.accelerator, catalogue)
        raise UsageError(
            f"{path.name} is for {file.accelerator!r}, which is not known.{close}",
            fix="describe it under `accelerators:` in a file for --offers (docs/catalogue.md).",
        )
    others = _curves_without(file, catalogue[file.accelerator])
    rows = (*_gemm(file, others), *_attention(file, others), *_streams(file, others))
    return CurveCheck(
        accelerator=file.accelerator,
        path=str(path),
        rows=(*rows, *_collectives(file, others)),
    )


def _curves_without(file: CurveFile, accelerator: Accelerator) -> DeviceCurves:
    """Return what would be used without the file: the embedded curves, else the relative's."""
    embedded = file.accelerator in measured_accelerators()
    if not embedded or file.path.resolve() == embedded_curve_file(file.accelerator).path.resolve():
        return curves_for(accelerator, without_own=True)
    return DeviceCurves(accelerator, embedded_curve_file(file.accelerator))


def _gemm(file: CurveFile, others: DeviceCurves) -> Iterator[CheckRow]:
    for dtype, grid in file.gemm_grids.items():
        m, n, k = np.array(list(product(grid.m, grid.n, grid.k))).T
        yield _row(
            f"gemm {dtype}",
            grid.log_time,
            [half_grid_error(grid.log_time, (grid.m, grid.n, grid.k))],
            others.relative_of("gemm", dtype),
            np.log(others.gemm_s(m, n, k, dtype=dtype)),
        )


def _attention(file: CurveFile, others: DeviceCurves) -> Iterator[CheckRow]:
    parts = (
        ("attention", file.attention_grids),
        ("attention_backward", file.attention_backward_grids),
    )
    for name, by_dtype in parts:
        for dtype, grids in by_dtype.items():
            predicted = [
                _attention_s(grid, others, dtype, backward=name != "attention") for grid in grids
            ]
            yield _row(
                f"{name} {dtype}",
                np.concatenate([grid.log_time.ravel() for grid in grids]),
                [half_grid_error(g.log_time, (g.batch_heads, g.seq, g.group)) for g in grids],
                others.relative_of("attention", dtype),
                np.log(np.concatenate(predicted)),
            )


def _attention_s(grid: AttentionGrid, curves: DeviceCurves, dtype: str, *, backward: bool) -> Array:
    heads, seq, group = np.array(list(product(grid.batch_heads, grid.seq, grid.group))).T
    return curves.attention_s(
        1, heads, heads / group, seq, seq, grid.head_dim,
        causal=True, dtype=dtype, backward=backward,
    )  # fmt: skip


def _streams(file: CurveFile, others: DeviceCurves) -> Iterator[CheckRow]:
    own = DeviceCurves(others.device, file)
    kinds: tuple[StreamKind, ...] = (
        "pointwise", "norm", "softmax", "copy", "embedding", "optimizer",
    )  # fmt: skip
    for kind in kinds:
        if kind in file.memory:
            here, there = (c.memory_bound_s(_STREAM_BYTES, kind=kind) for c in (own, others))
            against = others.relative_of("memory_bound")
            yield _row(f"stream {kind}", np.log(here), [], against, np.log(there))


def _collectives(file: CurveFile, others: DeviceCurves) -> Iterator[CheckRow]:
    for kind in COLLECTIVES:
        for table in file.collectives.get(kind, ()):
            there = others.collective_s(kind, table.size_bytes, table.ranks)
            middle = (table.log_time[:-2] + table.log_time[2:]) / 2 - table.log_time[1:-1]
            against = others.relative_of("collective")
            name = f"{kind} of {table.ranks}"
            yield _row(name, table.log_time, [middle], against, np.log(there))


def _row(
    part: str, log_time: Array, held_out: list[Array], against: str, log_predicted: Array
) -> CheckRow:
    """Return the errors of one part, all arrays in log seconds and in the same order."""
    off = np.ravel(log_predicted) - np.ravel(log_time)
    middle = float(np.median(off))
    errors = np.concatenate([np.ravel(part_error) for part_error in held_out] or [np.zeros(0)])
    return CheckRow(
        part=part,
        points=int(np.size(log_time)),
        held_out=_mape(errors) if len(errors) else None,
        against=against,
        mape=_mape(off),
        mape_after_factor=_mape(off - middle),
        factor=float(np.exp(-middle)),
    )


def _mape(log_errors: Array) -> float:
    return float(np.mean(np.abs(np.expm1(log_errors))))
