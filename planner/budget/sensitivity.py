"""Which assumptions move the total of a project most: each at its ends, all others as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from ...catalog.text.quantity import format_share
from ..cost.run_cost import CENT
from .ledger import Books, ledger, total_usd
from .money import NOTHING
from .planned import PlannedRuns
from .project.experiment import Experiment, Retry
from .ranges import error_key, high_factor
from .report.rows import Entry, Sensitivity
from .taxed_rows import taxed_rows

SHOWN = 5
OWN_ERRORS = 2
"""Experiments whose own error is looked at: the dearest."""
PRICE_STEP = 0.10
"""What if: no source says how prices move."""
DEVELOPMENT_STEP = 0.5
"""Development over training as published (`data/budget.toml`), for a project that counts none."""
FAILED_STEP = Retry(failed_share=0.1, mean_progress_at_failure=0.5)  # pyright: ignore[reportArgumentType]
"""What if, for a project that counts none: one run of ten fails half-way."""
FIXED_KINDS = ("storage", "commitment")
"""What an experiment pays that does not grow with its time."""


@dataclass(frozen=True, kw_only=True)
class _Assumption:
    name: str
    low: str
    high: str
    low_usd: Decimal
    high_usd: Decimal


def sensitivities(books: Books, entries: Sequence[Entry]) -> tuple[Sensitivity, ...]:
    """Return the five assumptions that move a project's total most, the strongest first.

    Args:
        books: the project and its runs.
        entries: its ledger.
    """
    found = [
        *_speed(books, entries),
        *_changed_runs(books),
        _prices(books, entries),
    ]
    moving = [
        Sensitivity(
            name=one.name, low=one.low, high=one.high, low_usd=one.low_usd, high_usd=one.high_usd
        )
        for one in found
        if one.low_usd != one.high_usd
    ]
    return tuple(sorted(moving, key=lambda one: -one.swing_usd)[:SHOWN])


def _speed(books: Books, entries: Sequence[Entry]) -> Iterator[_Assumption]:
    """Yield the error that all predictions share, and that of the dearest experiments alone."""
    total = total_usd(entries)
    ends = {one.name: high_factor(one.chosen(books.option)) for one in books.planned}
    timed = {name: _timed_usd(entries, name) for name, (low, high) in ends.items() if low != high}
    whole = sum(timed.values(), NOTHING)
    if not whole:
        return
    low, high = (
        sum((timed[name] * Decimal(ends[name][end]) for name in timed), NOTHING) for end in (0, 1)
    )
    yield _of_speed("how fast all runs train", total, whole, low, high)
    groups: dict[str, list[PlannedRuns]] = {}
    for one in books.planned:
        if timed.get(one.name):
            groups.setdefault(error_key(one, books.option), []).append(one)
    usd_of = {key: sum((timed[one.name] for one in of), NOTHING) for key, of in groups.items()}
    dearest = sorted(groups, key=lambda key: -usd_of[key])[:OWN_ERRORS]
    for key in dearest if len(groups) > 1 else ():
        low, high = NOTHING, NOTHING
        for one in groups[key]:
            faster, slower = high_factor(one.chosen(books.option), shared_only=False)
            low += timed[one.name] * Decimal(faster)
            high += timed[one.name] * Decimal(slower)
        yield _of_speed(_alone(groups[key]), total, usd_of[key], low, high)


def _alone(runs: Sequence[PlannedRuns]) -> str:
    """Return how an error is called that these runs alone have."""
    if len(runs) == 1:
        return f"how fast {runs[0].name} alone trains"
    return f"how fast {runs[0].name} and {len(runs) - 1} more of its model and plan train"


def _of_speed(name: str, total: Decimal, usd: Decimal, low: Decimal, high: Decimal) -> _Assumption:
    return _Assumption(
        name=name,
        low=f"{format_share(1 - float(low / usd))} less time",
        high=f"{format_share(float(high / usd) - 1)} more time",
        low_usd=(total - usd + low).quantize(CENT),
        high_usd=(total - usd + high).quantize(CENT),
    )


def _timed_usd(entries: Sequence[Entry], name: str) -> Decimal:
    own = taxed_rows(row for row in entries if row.experiment == name)
    return sum((usd for row, usd in own if row.kind not in FIXED_KINDS), NOTHING)


def _prices(books: Books, entries: Sequence[Entry]) -> _Assumption:
    """Return what all sums are if machines cost otherwise; what is signed or paid does not."""
    agreed = {one.name for one in books.planned if one.chosen(books.option).is_price_agreed}
    rented = (
        usd
        for row, usd in taxed_rows(entries)
        if row.sku is not None and row.kind != "storage" and row.experiment not in agreed
    )
    machines = sum(rented, NOTHING)
    total, step = total_usd(entries), machines * Decimal(str(PRICE_STEP))
    return _Assumption(
        name="prices of machines (what if)",
        low=f"{format_share(PRICE_STEP)} lower",
        high=f"{format_share(PRICE_STEP)} higher",
        low_usd=(total - step).quantize(CENT),
        high_usd=(total + step).quantize(CENT),
    )


def _changed_runs(books: Books) -> Iterator[_Assumption]:
    """Yield what changes how many runs there are: development, failed runs, seeds."""
    if not books.planned:
        return
    specs = [one.spec for one in books.planned]
    if any(spec.development for spec in specs):
        yield _Assumption(
            name="development runs",
            low="half as many",
            high="half as many again",
            low_usd=_total(books, lambda spec: {"development": spec.development * 0.5}),
            high_usd=_total(books, lambda spec: {"development": spec.development * 1.5}),
        )
    else:
        yield _Assumption(
            name="development runs (what if)",
            low="none",
            high=f"{DEVELOPMENT_STEP:g} × the final runs",  # noqa: RUF001
            low_usd=_total(books, lambda spec: {}),
            high_usd=_total(books, lambda spec: {"development": DEVELOPMENT_STEP}),
        )
    given = any(spec.retry is not None for spec in specs)
    yield _Assumption(
        name="runs that fail" if given else "runs that fail (what if)",
        low="none",
        high="twice as many" if given else "one of ten, half-way",
        low_usd=_total(books, lambda spec: {"retry": None}),
        high_usd=_total(books, lambda spec: {"retry": _more_failures(spec, given=given)}),
    )
    if any(spec.runs.seeds > 1 for spec in specs):
        yield _Assumption(
            name="seeds of every setting (what if)",
            low="one fewer",
            high="one more",
            low_usd=_total(books, lambda spec: _seeds(spec, -1)),
            high_usd=_total(books, lambda spec: _seeds(spec, 1)),
        )


def _more_failures(spec: Experiment, *, given: bool) -> Retry | None:
    if not given:
        return FAILED_STEP
    if spec.retry is None:
        return None
    return spec.retry.model_copy(update={"failed_share": min(0.9, 2 * spec.retry.failed_share)})


def _seeds(spec: Experiment, change: int) -> dict[str, object]:
    if spec.runs.seeds == 1:
        return {}
    return {"runs": spec.runs.model_copy(update={"seeds": spec.runs.seeds + change})}


def _total(books: Books, change: Callable[[Experiment], dict[str, object]]) -> Decimal:
    """Return the project's total with every experiment changed."""
    return total_usd(ledger(replace(books, planned=tuple(_changed(books.planned, change)))))


def _changed(
    planned: Sequence[PlannedRuns], change: Callable[[Experiment], dict[str, object]]
) -> Iterator[PlannedRuns]:
    for one in planned:
        spec = one.spec.model_copy(update=change(one.spec))
        runs = round(one.runs * spec.runs.seeds / one.spec.runs.seeds)
        yield replace(one, spec=spec, runs=runs)
