"""What a report rests on, what may go wrong, and what it leaves out, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ....catalog.text.amounts import format_given_share
from ....catalog.text.quantity import format_count, format_share
from ..fixed_rows import egress_price, known_until_gb, storage_price
from ..ledger import Books
from ..money import dollars
from ..planned import PlannedRuns, RunCostOf
from ..project.defaults import default
from ..project.lines import Egress, Storage
from .rows import AssumptionRow, ExperimentRow

OLD_PRICE_MONTHS = 12


RISKY_OOM = 0.02


MOST_NAMES = 3
"""Experiments that a sentence names before it counts the others."""


LARGE_SHARE = 0.8
"""Of all accelerator-hours in one region: its capacity is then the project's risk."""


FROM_FILE = "project file"


def assumptions(books: Books, *, prices: str) -> tuple[AssumptionRow, ...]:
    """Return what the sums rest on; what the project file does not say is marked as a default."""
    project = books.project
    rows = [
        AssumptionRow(name="prices", value=prices, source="the catalogue", is_default=True),
        _of("price trend a year", project.price_trend, "price_trend"),
        AssumptionRow(
            name="error that all runs share",
            value=f"{format_share(default('shared_error')[0])} of its variance",
            source=default("shared_error")[1],
            is_default=True,
        ),
        AssumptionRow(
            name="contingency",
            value=format_given_share(project.contingency) if project.contingency else "none",
            source=FROM_FILE if project.contingency else "none is added",
            is_default=not project.contingency,
        ),
    ]
    for name, field in (("development runs", "development"), ("failed runs begun again", "retry")):
        rows += _by_experiment(books.planned, name, field)
    rows += _batches(books.planned)
    return tuple(rows)


def _of(name: str, value: float, key: str) -> AssumptionRow:
    return AssumptionRow(
        name=name,
        value=f"{'+' if value > 0 else ''}{format_given_share(value)}" if value else "none",
        source=FROM_FILE if value else default(key)[1],
        is_default=not value,
    )


def _by_experiment(
    planned: Sequence[PlannedRuns], name: str, field: str
) -> Iterator[AssumptionRow]:
    """Yield what experiments say of their extra runs, and once the default of those that do not."""
    silent = False
    seen: set[str] = set()
    for one in planned:
        if one.experiment in seen:
            continue
        seen.add(one.experiment)
        value = getattr(one.spec, field)
        if not value:
            silent = True
        elif field == "retry":
            text = (
                f"{format_given_share(value.failed_share)} fail,"
                f" {format_given_share(value.mean_progress_at_failure)} of the way on average"
            )
            yield _said(f"{name}: {one.experiment}", text)
        else:
            yield _said(f"{name}: {one.experiment}", f"{value:g} × the final runs")  # noqa: RUF001
    if silent:
        where = "" if not any(getattr(one.spec, field) for one in planned) else ": the others"
        yield AssumptionRow(
            name=name + where, value="none", source=default(field)[1], is_default=True
        )


def _said(name: str, value: str) -> AssumptionRow:
    return AssumptionRow(name=name, value=value, source=FROM_FILE, is_default=False)


def _batches(planned: Sequence[PlannedRuns]) -> Iterator[AssumptionRow]:
    """Yield the global batch of every experiment that does not give one."""
    for one in planned:
        plan = one.chosen().plan
        if plan is None or one.spec.global_batch is not None or one.spec.plan is not None:
            continue
        yield AssumptionRow(
            name=f"global batch: {one.name}",
            value=f"{plan.global_batch:,} samples",
            source="rule of `gpuplan estimate` for a model of this size",
            is_default=True,
        )


def risks(
    books: Books,
    experiments: Sequence[ExperimentRow],
    *,
    oldest_price_months: int | None,
) -> tuple[str, ...]:
    """Return what may go wrong, in words."""
    found: list[str] = []
    for one in books.planned:
        found += _plan_risks(one, books)
    if oldest_price_months is not None and oldest_price_months > OLD_PRICE_MONTHS:
        found.append(f"The oldest price is {oldest_price_months} months old; look it up again.")
    found += _one_place(books, experiments)
    return tuple(dict.fromkeys(found))


def _plan_risks(one: PlannedRuns, books: Books) -> Iterator[str]:
    cost = one.chosen(books.option)
    plan = cost.plan
    yield from (f"{one.name}: {note}." for note in one.notes)
    if cost.usd is None:
        yield f"{one.name}: the price of {cost.rent} is not known, and it is in no sum."
    if cost.is_spot:
        yield f"{one.name}: spot machines may be taken away, and their price moves."
    if plan is None:
        return
    if plan.p_oom is not None and plan.p_oom > RISKY_OOM:
        yield f"{one.name}: a chance of {format_share(plan.p_oom)} that it runs out of memory."
    if plan.usually_reserved:
        yield (
            f"{one.name}: {plan.offer.instance_type} is usually had by reservation only; ask"
            " before it is planned with."
        )
    if plan.runnable is False:
        why = plan.why_not_runnable or "its layout needs another stack"
        yield f"{one.name}: `gpuplan launch` does not carry this plan out: {why}"
    run = plan.run
    if run is not None and run.deadline_probability is not None and run.deadline_probability < 0.9:
        yield (
            f"{one.name}: a chance of {format_share(run.deadline_probability)} that a run keeps to"
            " its deadline."
        )


def _one_place(books: Books, experiments: Sequence[ExperimentRow]) -> Iterator[str]:
    hours: dict[tuple[str, str], float] = {}
    by_name = {row.name: row for row in experiments}
    for one in books.planned:
        cost = one.chosen(books.option)
        key = cost.provider, cost.region or "any region"
        hours[key] = hours.get(key, 0.0) + by_name[one.name].accelerator_hours
    whole = sum(hours.values())
    for (provider, region), used in hours.items():
        if whole and used / whole >= LARGE_SHARE:
            yield (
                f"{format_share(used / whole)} of the accelerator-hours are in {provider} {region}:"
                " ask there for quota and capacity first."
            )


def not_included(books: Books) -> tuple[str, ...]:
    """Return what the sums do not hold."""
    project = books.project
    found = [*_unpriced(books)]
    found += [
        f"{one.name}: {format_count(one.gb)} GB kept ({_unpriced_data(one, 'usd_per_gb_month')})"
        for one in project.storage
        if storage_price(one) is None
    ]
    found += [
        f"{one.name}: {format_count(one.gb)} GB sent ({_unpriced_data(one, 'usd_per_gb')})"
        for one in project.egress
        if egress_price(one) is None
    ]
    found += [
        f"{one.name}: {one.instance} (no price is known)"
        for one, price in zip(project.idle, books.idle, strict=True)
        if price.usd_per_hour is None
    ]
    found += _perhaps(books)
    found += _credits(books)
    if not any(one.kind == "people" for one in project.extras):
        found.append("people")
    if not project.storage:
        found.append("storage of data sets")
    taxed = any(line.kind == "tax" for one in books.planned for line in one.chosen().lines)
    if not taxed and not books.tax_percent:
        found.append("taxes")
    return tuple(found)


def _unpriced_data(one: Storage | Egress, field: str) -> str:
    """Return why data has no price, and what to give."""
    if one.provider is None or one.region is None:
        place = "region" if one.provider else "provider and region"
        return f"no price is known; give {place}, or {field}"
    place = f"{one.provider} {one.region}"
    last_gb = known_until_gb(one)
    if last_gb is None:
        return f"no price of {place} is known; give {field}"
    return f"of {place} the price of the first {last_gb:,.0f} GB is known; give {field}"


def _unpriced(books: Books) -> Iterator[str]:
    """Yield the lines without a price, one sentence for all experiments that lack the same."""

    def lines_of(cost: RunCostOf) -> Sequence[str]:
        return (*cost.unknown, *(("the machines themselves",) if cost.usd is None else ()))

    for names, lines in _alike(books, lines_of):
        yield f"{names}: {lines} (no price is known)"


def _credits(books: Books) -> Iterator[str]:
    """Yield the credits of the pricebook that the project file has no funding of."""
    funded = {one.provider for one in books.project.funding if one.kind == "credits"}
    for one in books.credits:
        if one.provider not in funded:
            yield (
                f"{dollars(one.usd)} of credits of {one.provider} until"
                f" {one.expires.isoformat()}, by the pricebook (give them as `funding`)"
            )


def _perhaps(books: Books) -> Iterator[str]:
    """Yield the lines that runs may do without, which no estimate counts either."""
    for names, lines in _alike(books, lambda cost: cost.perhaps):
        yield f"{names}: {lines} (not every run pays them)"


def _alike(
    books: Books, lines_of: Callable[[RunCostOf], Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """Yield the names of the experiments that have the same lines, and those lines."""
    groups: dict[str, list[str]] = {}
    for one in books.planned:
        lines = ", ".join(dict.fromkeys(lines_of(one.chosen(books.option))))
        if lines:
            groups.setdefault(lines, []).append(one.name)
    for lines, names in groups.items():
        yield _named(names, len(books.planned)), lines


def _named(names: Sequence[str], among: int) -> str:
    """Return "a, b", "a, b, c and 4 more experiments", or "all 7 experiments"."""
    names = list(dict.fromkeys(names))
    if len(names) > 1 and len(names) == among:
        return f"all {among} experiments"
    if len(names) <= MOST_NAMES + 1:
        return ", ".join(names)
    left = len(names) - MOST_NAMES
    return f"{', '.join(names[:MOST_NAMES])} and {left} more experiments"
