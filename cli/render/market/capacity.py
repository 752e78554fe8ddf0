"""What the account can start where, as text, CSV or JSON."""

from __future__ import annotations

from collections.abc import Iterator

from ....catalog.listing.capacity import CapacityAnswer, CapacityLine, QuotaLine
from ....catalog.names import listed_instance
from ...terminal.output import Screen
from ..text.answer import UNKNOWN, count_text, to_csv, to_json, usd_text, with_notes
from ..text.grid import Column, Grid

MOST_COMMANDS = 3
"""Commands and reasons shown below a table; JSON has them for every line."""


def render_capacity(found: CapacityAnswer, form: str, screen: Screen, *, top: int | None) -> str:
    """Return the answer in one of the four forms."""
    if form == "json":
        return to_json(found)
    if form == "csv":
        return to_csv(CapacityLine, found.lines)
    shown = found.lines[:top]
    grid = Grid(_COLUMNS, [_cells(one) for one in shown])
    return with_notes(grid, list(_notes(found, len(shown))), form, screen)


_COLUMNS = [
    Column("provider"),
    Column("region"),
    Column("instance", shrink=True, key=True),
    Column("start now?"),
    Column("offered"),
    Column("quota used"),
    Column("score", right=True, from_width=90),
    Column("held", right=True, from_width=100),
    Column("block", right=True, from_width=110),
    Column("$/h", right=True, from_width=80),
]


def _cells(one: CapacityLine) -> list[str]:
    return [
        one.provider,
        one.region,
        listed_instance(one.provider, one.instance_type),
        one.startable,
        _offered(one),
        "; ".join(map(_quota, one.quotas)) or UNKNOWN,
        UNKNOWN if one.score is None else f"{one.score.score:g} of {one.score.of:g}",
        f"{one.held_free}" if one.held else UNKNOWN,
        f"${usd_text(one.blocks[0].upfront_usd)}" if one.blocks else UNKNOWN,
        usd_text(one.usd_per_hour),
    ]


def _offered(one: CapacityLine) -> str:
    if one.restricted is not None:
        return "restricted"
    if one.offered is None:
        return UNKNOWN
    if not one.offered:
        return "no"
    return "1 zone" if len(one.zones) == 1 else f"{len(one.zones)} zones"


def _quota(one: QuotaLine) -> str:
    used = UNKNOWN if one.used is None else f"{one.used:g}"
    where = " in all regions" if one.region == "global" else ""
    where = where if one.zone is None else f" in {one.zone}"
    return f"{used} of {one.limit:g} {one.unit}{where}, needs {one.needed:g}"


def _places(count: int) -> str:
    return "1 place" if count == 1 else f"{count} places"


def _counted(found: CapacityAnswer) -> str:
    """Return in how many places they can be started, in how many not, and where nobody knows."""
    said = {"yes": "can be started in", "no": "cannot in", "unknown": "unknown in"}
    counts = {one: sum(line.startable == one for line in found.lines) for one in said}
    if not found.lines:
        return "nobody who was asked sells it"
    parts = [f"{words} {_places(counts[one])}" for one, words in said.items() if counts[one]]
    return ", ".join(parts)


def _notes(found: CapacityAnswer, shown: int) -> Iterator[str]:
    nodes = "1 node" if found.nodes == 1 else f"{found.nodes} nodes"
    yield f"{nodes} of {found.accelerator}, {found.purchase}: {_counted(found)}."
    if shown < len(found.lines):
        yield f"{len(found.lines) - shown:,} more places (--top)."
    for provider, why in found.providers_unknown.items():
        yield f"{provider} unknown: {why}."
    yield from _restrictions(found)
    yield from _reasons(found)
    commands = [
        (line, quota)
        for line in found.lines
        for quota in line.quotas
        if quota.command is not None and line.offered is not False
    ]
    for line, quota in commands[:MOST_COMMANDS]:
        yield f"More quota in {line.region} ({quota.name}): {quota.command}"
    if len(commands) > MOST_COMMANDS:
        yield f"{len(commands) - MOST_COMMANDS} more such commands: --format json."
    blocks = sorted(
        (block for line in found.lines for block in line.blocks),
        key=lambda one: (one.upfront_usd, one.starts),
    )
    for block in blocks[:MOST_COMMANDS]:
        yield (
            f"Block of {block.instances} × {block.instance_type} in {block.zone or block.region},"  # noqa: RUF001
            f" {count_text(block.hours)} h from {block.starts:%Y-%m-%d %H:%M} UTC,"
            f" ${usd_text(block.upfront_usd)} paid today: {block.command}"
        )
    yield from _windows(found)
    yield from _histories(found)


def _windows(found: CapacityAnswer) -> Iterator[str]:
    """Yield what can be reserved for a fixed time, the earliest first, and where nothing can."""
    windows = [window for line in found.lines for window in line.windows]
    advised = [one for one in windows if one.starts is not None and one.ends is not None]
    for one in sorted(advised, key=lambda each: (each.starts, each.zone))[:MOST_COMMANDS]:
        usd = "" if one.usd is None else f" (${usd_text(one.usd)})"
        yield (
            f"Calendar mode: {one.instances} × {one.instance_type} in {one.zone}"  # noqa: RUF001
            f" from {one.starts:%Y-%m-%d %H:%M} to {one.ends:%Y-%m-%d %H:%M} UTC, paid whole{usd}"
            f" from its start, not to be taken back: {one.command}"
        )
    without = [f"{one.zone} ({one.status})" for one in windows if one.starts is None]
    if without:
        more = f" and {len(without) - MOST_COMMANDS} more" if len(without) > MOST_COMMANDS else ""
        yield f"Calendar mode elsewhere: {', '.join(without[:MOST_COMMANDS])}{more}."


def _histories(found: CapacityAnswer) -> Iterator[str]:
    known = [line.spot_history for line in found.lines if line.spot_history is not None]
    for one in known[:MOST_COMMANDS]:
        parts = []
        if one.preempted_low is not None and one.preempted_high is not None:
            parts.append(
                f"of {one.instance_type} on spot that stopped, {one.preempted_low:.0%} to"
                f" {one.preempted_high:.0%} were taken away (why they stop, not how often)"
            )
        if one.usd_low is not None and one.usd_high is not None:
            parts.append(f"${usd_text(one.usd_low)} to ${usd_text(one.usd_high)} an hour")
        yield f"Since {one.begins:%Y-%m-%d} in {one.region}: {'; '.join(parts)}."


def _restrictions(found: CapacityAnswer) -> Iterator[str]:
    """Yield why machines that are there cannot be started, the places of one reason in one line."""
    by_reason: dict[tuple[str, str, str], list[str]] = {}
    for line in found.lines:
        if line.restricted is not None:
            key = (line.provider, line.instance_type, line.restricted)
            by_reason.setdefault(key, []).append(line.region)
    for (provider, instance_type, reason), regions in by_reason.items():
        where = ", ".join(regions[:MOST_COMMANDS])
        more = f" and {len(regions) - MOST_COMMANDS} more" if len(regions) > MOST_COMMANDS else ""
        yield f"{provider} {instance_type} in {where}{more}: {reason}."


def _reasons(found: CapacityAnswer) -> Iterator[str]:
    """Yield what is not known and why, the places of one reason in one line."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for line in found.lines:
        if line.provider in found.providers_unknown:
            continue
        for reason in line.unknown:
            regions = by_reason.setdefault((line.provider, reason), [])
            if line.region not in regions:
                regions.append(line.region)
    for (provider, reason), regions in by_reason.items():
        where = ", ".join(regions[:MOST_COMMANDS])
        more = f" and {len(regions) - MOST_COMMANDS} more" if len(regions) > MOST_COMMANDS else ""
        yield f"{provider} unknown in {where}{more}: {reason}."
