"""What it costs to go on with a launch, before its machines are rented again."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from ....catalog.text.quantity import UNKNOWN
from ....launcher.prepare.money.bought_again import BoughtAgain
from ....launcher.store.accounting import spent_usd


def resumed_lines(again: BoughtAgain, *, now: datetime) -> list[str]:
    """Return where and how it is bought, what is spent, and what all of it may come to."""
    record = again.record
    places = ", ".join(
        f"{one.infra} {_usd(one.usd_per_hour * record.nodes)}/h{_market(one.spot, again.spot)}"
        for one in record.places
    )
    worst = [usd for usd in (record.usd_worst, again.cap_usd) if usd is not None]
    text = f"{_usd(min(worst) if worst else None)} at worst in all"
    if again.cap_usd is not None:
        text += f"; its guard ends it before {_usd(again.cap_usd)}"
    return [
        f"{record.run} goes on {'as spot' if again.spot else 'on demand'}: {places}.",
        f"{_usd(spent_usd(record, now=now))} is spent, {text}.",
    ]


def _market(spot: bool, all_spot: bool) -> str:
    return " on demand, for its deadline" if all_spot and not spot else ""


def _usd(usd: Decimal | None) -> str:
    return UNKNOWN if usd is None else f"${usd:,.2f}"
