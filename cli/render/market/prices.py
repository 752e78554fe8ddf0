"""Price snapshots of the user as text: what was refreshed, what changed, how it went over time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from ....catalog.listing.price_changes import PriceChange, PriceDifference, PriceHistory, PricePoint
from ....catalog.prices.snapshot import PriceSnapshot, ProviderPrices, state_of
from ...terminal.output import Screen
from ..text.answer import UNKNOWN, count_text, to_csv, to_json, usd_text, with_notes
from ..text.grid import Column, Grid

MOST_NAMED = 5
"""Regions, rules and instance types named in a line of the table; JSON has all of them."""
PACKAGE = "package"


def render_snapshot(snapshot: PriceSnapshot | None, form: str, screen: Screen) -> str:
    """Return which prices every estimate takes, and how they came about."""
    if form == "json":
        return to_json(state_of(snapshot)) if snapshot else "null\n"
    if snapshot is None:
        return (
            "No prices of your own: estimates take those of the package\n"
            "(gpuplan offers says their dates).\n"
            "Next: gpuplan prices refresh\n"
        )
    grid = Grid(_STATE_COLUMNS, [_state_cells(one) for one in snapshot.providers])
    return with_notes(grid, list(_state_notes(snapshot)), form, screen)


_STATE_COLUMNS = [
    Column("provider", key=True),
    Column("prices of"),
    Column("types × regions", right=True),  # noqa: RUF001
    Column("refused", right=True),
    Column("unmapped", right=True),
    Column("state", shrink=True),
]


def _state_cells(one: ProviderPrices) -> list[str]:
    return [
        one.provider,
        UNKNOWN if one.prices_at is None else f"{one.prices_at.astimezone(UTC):%Y-%m-%d %H:%M}",
        f"{one.rows:,}",
        f"{sum(one.refused.values()):,}",
        f"{len(one.unmapped):,}",
        _state(one),
    ]


def _state(one: ProviderPrices) -> str:
    if not one.is_kept:
        return "fresh"
    kept = "older prices kept" if one.prices_at else "the package's prices stay"
    return f"{kept}: {one.why}"


def _state_notes(snapshot: PriceSnapshot) -> Iterator[str]:
    yield f"Snapshot of {snapshot.made_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC."
    for one in snapshot.providers:
        if one.refused:
            counts = sorted(one.refused.items(), key=lambda item: -item[1])
            named = ", ".join(f"{count:,} {rule}" for rule, count in counts[:MOST_NAMED])
            more = "" if len(counts) <= MOST_NAMED else " and others"
            yield f"{one.provider} rows refused, by rule: {named}{more}."
        held = [each for each in one.examples if each.rule == "outlier"]
        for each in held[:MOST_NAMED]:
            yield f"Held back: {one.provider} {each.what} in {each.region}: {each.why}."
        if len(held) > MOST_NAMED:
            yield f"Held back: {len(held) - MOST_NAMED} more (--format json)."
        if held:
            yield "To take them: gpuplan prices refresh --accept-changes"
        if one.commitments:
            yield f"{one.provider} commitments of 1 and 3 years: {one.commitments:,} prices."
        if one.evictions:
            yield f"{one.provider} eviction rates, each a chance per hour: {one.evictions:,}."
        if one.unmapped:
            named = ", ".join(one.unmapped[:MOST_NAMED])
            more = "" if len(one.unmapped) <= MOST_NAMED else " …"
            yield f"{one.provider} sells what the catalogue does not have: {named}{more}."
        yield from _silent(one)


def _silent(one: ProviderPrices) -> Iterator[str]:
    """Yield what a provider did not say, the regions of one reason in one line."""
    by_reason: dict[str, list[str]] = {}
    for each in one.unanswered:
        by_reason.setdefault(each.text, []).append(each.region or "all regions")
    for reason, regions in by_reason.items():
        named = ", ".join(regions[:MOST_NAMED])
        more = "" if len(regions) <= MOST_NAMED else f" and {len(regions) - MOST_NAMED} more"
        yield f"{one.provider} not asked or silent: {named}{more}: {reason}."


def render_difference(found: PriceDifference, form: str, screen: Screen, *, top: int | None) -> str:
    """Return what changed from one snapshot to another."""
    if form == "json":
        return to_json(found)
    if form == "csv":
        return to_csv(PriceChange, found.changes)
    shown = found.changes[:top]
    grid = Grid(_CHANGE_COLUMNS, [_change_cells(one) for one in shown])
    notes = [
        f"From {found.before} to {found.after}: {len(found.changes):,} prices changed,"
        f" {found.unchanged:,} did not."
    ]
    if len(shown) < len(found.changes):
        notes.append(f"{len(found.changes) - len(shown):,} more (--top).")
    return with_notes(grid, notes, form, screen)


_CHANGE_COLUMNS = [
    Column("provider"),
    Column("region"),
    Column("instance", shrink=True, key=True),
    Column("bought"),
    Column("before $/h", right=True),
    Column("after $/h", right=True),
    Column("change", right=True),
]


def _change_cells(one: PriceChange) -> list[str]:
    ratio = one.ratio
    return [
        one.provider,
        one.region,
        one.instance_type,
        one.purchase,
        usd_text(one.before_usd_per_hour),
        usd_text(one.after_usd_per_hour),
        one.change if ratio is None else f"{ratio - 1:+.1%}",
    ]


def render_history(found: PriceHistory, form: str, screen: Screen) -> str:
    """Return the lowest prices of every snapshot, by provider."""
    if form == "json":
        return to_json(found)
    if form == "csv":
        return to_csv(PricePoint, found.points)
    grid = Grid(_HISTORY_COLUMNS, [_history_cells(one) for one in found.points])
    own = {one.made_at for one in found.points if one.made_at is not None}
    count = "1 snapshot" if len(own) == 1 else f"{len(own)} snapshots"
    notes = [
        f"Lowest prices of {found.accelerator} in {count} of your own, and of the package,"
        " $/h of one instance."
    ]
    if not own:
        notes.append("Each `gpuplan prices refresh` adds one.")
    return with_notes(grid, notes, form, screen)


_HISTORY_COLUMNS = [
    Column("snapshot"),
    Column("priced"),
    Column("provider", key=True),
    Column("accelerators"),
    Column("$/h", right=True),
    Column("in", from_width=90),
    Column("spot $/h", right=True),
    Column("spot in", from_width=110),
]


def _history_cells(one: PricePoint) -> list[str]:
    made = PACKAGE if one.made_at is None else _when(one.made_at)
    return [
        made,
        one.day.isoformat(),
        one.provider,
        f"{count_text(one.accelerators)} × {one.accelerator}",  # noqa: RUF001
        usd_text(one.on_demand_usd_per_hour),
        one.on_demand_region or UNKNOWN,
        usd_text(one.spot_usd_per_hour),
        one.spot_region or UNKNOWN,
    ]


def _when(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"
