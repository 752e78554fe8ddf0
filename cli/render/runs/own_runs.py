"""What one's own runs say of the curves of their devices, as text or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..text.columns import Align, aligned, column_widths

if TYPE_CHECKING:
    from ....planner.validation.own_calibration import OwnCalibration, StoreCalibration

DASH = "–"


def render_own_runs(answer: StoreCalibration, form: str) -> str:
    """Return what moved, with the errors before and after."""
    if form == "json":
        return answer.model_dump_json(indent=2) + "\n"
    lines = [line for one in answer.accelerators for line in (*_device(one), "")]
    for one in answer.left_out:
        lines.append(f"Left out: {one.run}, as {one.why}.")
    return "\n".join(lines).rstrip("\n") + "\n"


def _device(one: OwnCalibration) -> Iterator[str]:
    count = len(one.configurations)
    yield f"{one.accelerator}: {one.runs} runs in {count} models or plans"
    if one.configurations:
        yield ""
        yield from _table(one)
        yield ""
    if one.factor is not None:
        yield (
            f"All kernel times × {one.factor:.3f}: mean error {_percent(one.mape_before)} before,"  # noqa: RUF001
            f" {_percent(one.mape_after)} after, {_percent(one.mape_held_out)} where each was held"
            " out."
        )
    if one.path is None:
        yield f"Nothing was written: {one.why_not}."
        return
    yield f"Curves: {one.path}"
    if one.kept_as is not None:
        yield f"The file that was there before: {one.kept_as}"


def _table(one: OwnCalibration) -> list[str]:
    heading = ("model", "plan", "runs", "measured", "before", "error", "after", "error")
    rows: list[Sequence[str]] = [heading]
    for row in one.configurations:
        rows.append(
            (
                row.model,
                row.plan_key.partition(" | ")[2],
                str(len(row.runs)),
                _seconds(row.measured_s),
                _seconds(row.before_s),
                _signed(row.error_before),
                _seconds(row.after_s),
                _signed(row.error_after),
            )
        )
    widths = column_widths(rows)
    right: Align = "right"
    aligns: list[Align] = ["left", "left", *(right for _ in heading[2:])]
    return [aligned(row, widths, aligns).rstrip() for row in rows]


def _seconds(seconds: float | None) -> str:
    return DASH if seconds is None else f"{seconds:.4g} s"


def _signed(share: float | None) -> str:
    return DASH if share is None else f"{share * 100:+.1f} %"


def _percent(share: float | None) -> str:
    return DASH if share is None else f"{share * 100:.1f} %"
