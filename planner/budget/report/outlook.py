"""What a project will come to: launches as they are, all other runs as they were planned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from ..money import NOTHING
from .actual_rows import SpentRow, VarianceRow
from .rows import ExperimentRow


def will_come_to_usd(
    total_usd: Decimal,
    experiments: Sequence[ExperimentRow],
    spent: Iterable[SpentRow],
    variances: Iterable[VarianceRow],
) -> Decimal:
    """Return US dollars of the whole project at its end, never less than what is spent.

    Launches that have ended count what they have cost, open ones what they are likely to, each in
    place of a planned run that it carries out; what is beyond the planned runs comes on top.

    Args:
        total_usd: as it was planned.
        experiments: of the project.
        spent: its launches.
        variances: what of them has ended, by experiment.
    """
    of_row: dict[str | None, list[SpentRow]] = {}
    for one in spent:
        of_row.setdefault(one.experiment, []).append(one)
    ended = {one.experiment: one for one in variances}
    found = total_usd - sum((row.total.usd for row in experiments), NOTHING)
    found += sum((_ends_usd(one) for one in of_row.get(None, ())), NOTHING)
    for row in experiments:
        found += _of_experiment(row, of_row.get(row.name, []), ended.get(row.name))
    return found


def _of_experiment(
    row: ExperimentRow, launches: list[SpentRow], variance: VarianceRow | None
) -> Decimal:
    """Return what an experiment will come to: without a price, what its launches will."""
    ends = sum((_ends_usd(one) for one in launches), NOTHING)
    if row.run_usd is None:
        return max(row.total.usd, ends)
    done = 0 if variance is None else variance.succeeded
    still_open = sum(one.forecast_usd is not None for one in launches)
    carried_out = min(row.runs, done + still_open)
    # Runs that end early were planned at less than a whole one: no less than is spent is left.
    return max(row.total.usd - row.run_usd * carried_out + ends, ends)


def _ends_usd(one: SpentRow) -> Decimal:
    """Return what a launch has cost at its end, likely so where it is open."""
    return one.usd if one.forecast_usd is None else max(one.usd, one.forecast_usd)
