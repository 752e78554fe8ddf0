"""What a launch is going to cost, and where it is tried, in a few lines."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from rich.text import Text

from ...catalog.units import SECONDS_PER_HOUR
from ...launcher.launch import Prepared
from ...planner.plan import CostLine
from .quantity import UNKNOWN
from .wording import describe_accelerators, describe_place

LABEL_WIDTH = 20
MINUTE_S = 60


def render_launch(prepared: Prepared) -> list[Text]:
    """Return the money and the places of a launch, as lines."""
    plan = prepared.plan
    title = f"Plan {plan.id}: {describe_accelerators(plan)} · {describe_place(plan)}"
    return [
        Text(title, style="bold"),
        *(_cost_line(line, plan.nodes) for line in prepared.cost.lines),
        *_sums(prepared),
        *_places(prepared),
        *(Text(f"Note: {note}.") for note in prepared.notes),
    ]


def _cost_line(line: CostLine, nodes: int) -> Text:
    seconds = line.quantity / nodes * SECONDS_PER_HOUR
    return _line(line.name, f"{_span(seconds):>12}  {_usd(line.usd):>12}")


def _sums(prepared: Prepared) -> Iterator[Text]:
    cost = prepared.cost
    rate = f"{_usd(cost.usd_per_hour)} an hour"
    if cost.usd_expected is None or cost.hours_expected is None or cost.hours_worst is None:
        yield _line("total", f"{UNKNOWN} (how long the job runs is not known); {rate}")
        return
    expected = f"{_span(cost.hours_expected * SECONDS_PER_HOUR):>12}"
    yield _line("expected", f"{expected}  {_usd(cost.usd_expected):>12}  {rate}")
    worst = f"{_span(cost.hours_worst * SECONDS_PER_HOUR):>12}"
    yield _line(
        "at worst",
        f"{worst}  {_usd(cost.usd_worst):>12}  slowest start, top of the 80 % interval",
    )


def _places(prepared: Prepared) -> Iterator[Text]:
    if len(prepared.places) == 1:
        return
    tried = (f"{place.infra} ({_usd(place.usd_per_hour)} a node)" for place in prepared.places)
    yield _line("tried in order", ", ".join(tried))


def _span(seconds: float) -> str:
    if seconds < MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < SECONDS_PER_HOUR:
        return f"{seconds / MINUTE_S:.1f} min"
    return f"{seconds / SECONDS_PER_HOUR:,.1f} h"


def _usd(usd: Decimal | None) -> str:
    return UNKNOWN if usd is None else f"${usd:,.2f}"


def _line(label: str, text: str) -> Text:
    return Text(f"  {label:<{LABEL_WIDTH}}{text}")
