"""What `gpuplan calibrate` measured, and how good a curve file is, as table or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .text.columns import Align, aligned, column_widths

if TYPE_CHECKING:
    from ...profiles.calibrate.calibrate import Calibration
    from ...profiles.calibrate.check import CurveCheck

DASH = "–"
ENDED = {
    "complete": "all of the plan",
    "budget": "until the budget was spent",
    "interrupted": "until it was interrupted",
    "crashed": "until the measuring process could not be started again",
}


def render_calibration(done: Calibration, form: str) -> str:
    """Return the summary of a measurement."""
    if form == "json":
        facts = {
            "schema_version": "1.0",
            "accelerator": done.accelerator.name,
            "path": str(done.path),
            "parts": summary_rows(done),
            "measurement": done.record["measurement"],
        }
        return json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    rows = [("kernels", "points", "best", "noise", "held-out error")]
    for row in summary_rows(done):
        error, noise = _percent(row["relative_error"]), _percent(row["noise"])
        rows.append((row["part"], str(row["points"]), row["best"] or DASH, noise, error))
    run = done.run
    lines = [
        f"{done.accelerator.name}: {len(run.results)} of {run.planned} kernels measured,"
        f" {ENDED[run.ended]}",
        "",
        *_table(rows),
        "",
    ]
    if run.rejected:
        lines.append(f"{len(run.rejected)} results were above the dense peak and are left out.")
    if run.skipped:
        lines.append(f"{len(run.skipped)} kernels did not run (why: `measurement` in the file).")
    load = done.record["measurement"]["load"]
    if load and load["slowed_by"]:
        lines.append(f"Clocks were lowered by: {', '.join(load['slowed_by'])}.")
    lines += _noise_lines(done)
    lines.append(f"Curves: {done.path}")
    return "\n".join(lines) + "\n"


def _noise_lines(done: Calibration) -> list[str]:
    """Return what to do where repeats of a kernel took so different times that others ran."""
    noisy = done.record["measurement"]["noisy"]
    if not noisy:
        return []
    return [
        f"Repeats differ widely ({', '.join(noisy)}): something else was running, and these times"
        " are too long.",
        "To fix: close other programs and measure again. Until then estimates for"
        f" {done.accelerator.name} rest on them, unless the file is removed.",
    ]


def summary_rows(done: Calibration) -> list[dict[str, Any]]:
    """Return one row for each kind of kernel: points, the best rate, noise, held-out error."""
    rows = []
    measurement = done.record["measurement"]
    for part, noise in measurement["noise"].items():
        kind, _, dtype = part.partition(" ")
        mine = [r for r in done.run.results if (r.point.part, r.point.dtype) == (kind, dtype)]
        flops = max(r.point.flops / r.time_s for r in mine)
        size = max(r.point.size_bytes / r.time_s for r in mine)
        best = f"{flops / 1e12:.3g} TFLOP/s" if flops else f"{size / 1e9:.3g} GB/s"
        rows.append(
            {
                "part": part,
                "points": len(mine),
                "best": best,
                "noise": noise,
                "relative_error": _error_of(done.record, kind, dtype),
            }
        )
    return rows


def render_check(check: CurveCheck, form: str) -> str:
    """Return the errors of a curve file."""
    if form == "json":
        return json.dumps(check.to_json(), indent=2) + "\n"
    rows = [("kernels", "points", "held out", "against", "MAPE", "after one factor", "factor")]
    for row in check.rows:
        rows.append(
            (
                row.part,
                str(row.points),
                _percent(row.held_out),
                row.against or DASH,
                _percent(row.mape),
                _percent(row.mape_after_factor),
                DASH if row.factor is None else f"{row.factor:.2f}",
            )
        )
    lines = [f"{check.accelerator}, {check.path}", "", *_table(rows), ""]
    lines.append("held out: half of the grid predicted from the other half (mean of |error|).")
    lines.append("factor: the time in this file over that of the curves it is held against.")
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = column_widths(rows)
    right: Align = "right"
    aligns: list[Align] = ["left", *(right for _ in rows[0][1:])]
    return [aligned(row, widths, aligns).rstrip() for row in rows]


def _error_of(record: dict[str, Any], kind: str, dtype: str) -> float | None:
    found: dict[str, Any] = {}
    if kind == "gemm":
        found = record.get("gemm_grids", {}).get(dtype, {})
    elif kind == "attention":
        found = record.get("attention_forward", {})
    elif kind == "attention_backward":
        found = record.get("attention_backward", {})
    elif kind == "stream":
        found = record.get("memory", {}).get(dtype, {})
    elif kind == "collective":
        found = record.get("collectives", {})
    elif kind == "batched":
        found = record.get("tile_models", {}).get("fp32", {}).get("batched", {})
    elif dtype == "fp32":
        found = record.get("tile_models", {}).get("fp32", {}).get("conv", {})
    else:
        found = record.get("convolutions", {}).get(dtype, {})
    return found.get("relative_error")


def _percent(share: float | None) -> str:
    return DASH if share is None else f"{share * 100:.1f} %"
