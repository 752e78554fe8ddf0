"""Markdown tables of errors, and how numbers are written in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuplan.planner.validation.errors import SummaryRow
from gpuplan.planner.validation.folds import Protocol

from .groups import target_of

DASH = "–"


def error_table(rows: Sequence[SummaryRow], protocol: Protocol | None) -> str:
    """Return the errors of groups as a table, with targets where the protocol has them."""
    targets = {row.group: target_of(row.group, protocol) for row in rows}
    with_targets = any(targets.values())
    headings = ["group", "n", "MAPE", *(["target", "met"] if with_targets else [])]
    headings += ["median", "p90", "worst", "bias", "in 80 %", "width", "best constant", "50 % HFU"]
    lines = [row_of(headings), row_of(["---", *["--:"] * (len(headings) - 1)])]
    for row in rows:
        target = targets[row.group]
        met = "" if target is None else "yes" if row.mape <= target else "**no**"
        cells = [row.group, f"{row.n:,}", percent(row.mape)]
        cells += [percent(target) if target else "", met] if with_targets else []
        cells += [percent(row.median), percent(row.p90), signed(row.worst), signed(row.bias)]
        cells += [percent(row.covered, 0), factor(row.width)]
        cells += [percent(row.null_best_constant), percent(row.null_50_hfu)]
        lines.append(row_of(cells))
    return "\n".join(lines)


def row_of(cells: Iterable[str]) -> str:
    """Return one line of a table."""
    return f"| {' | '.join(cells)} |"


def percent(share: float | None, digits: int = 1) -> str:
    """Return 0.123 as "12.3 %"."""
    return DASH if share is None else f"{share * 100:.{digits}f} %"


def signed(share: float | None) -> str:
    """Return 0.123 as "+12.3 %"."""
    return DASH if share is None else f"{share * 100:+.1f} %"


def factor(width: float | None) -> str:
    """Return the width 0.13 as "×÷ 1.13"."""
    return DASH if width is None else f"×÷ {1 + width:.2f}"
