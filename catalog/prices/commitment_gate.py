"""Rules that the price of every commitment passes before it is kept. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from ..clouds.interface import Refused
from ..embedded import CURATED_DIR, Catalogue
from ..terms.on_demand import NOT_ON_DEMAND_RULE, sold_otherwise
from ..types import CommitmentRow
from .gate import (
    FARTHEST_FROM_KIN,
    LARGEST_CHANGE,
    OUTLIER_RULE,
    listed_once,
    middle_prices,
    refusal,
    why_not_sold,
)

LEAST_SHARE = Decimal("0.2")
"""Of the on-demand price. The largest discount that a seller states is 72 %, of AWS's EC2 Instance
Savings Plans: https://aws.amazon.com/savingsplans/compute-pricing/ (recalled, 2026-11-25)."""

Place = tuple[str, str, str]
"""(provider, region, instance type)."""
Key = tuple[str, str, str, int]
"""A place, and years."""


@dataclass(frozen=True, kw_only=True)
class PassedCommitments:
    """What the gate let through, one price for each place and term, and what it held back."""

    rows: tuple[CommitmentRow, ...]
    refused: tuple[Refused, ...]


def passed_commitments(
    rows: Iterable[CommitmentRow],
    catalogue: Catalogue,
    last: Iterable[CommitmentRow],
    on_demand: Mapping[Place, Decimal],
    *,
    accept_changes: bool = False,
) -> PassedCommitments:
    """Return the prices that may be kept, the cheapest plan of each place and term.

    Args:
        rows: As the clouds' own rules let them through.
        catalogue: Whose instance types are known.
        last: What was known up to now, against which a price may be an outlier.
        on_demand: Prices of an hour without a commitment, as the same answer leaves them.
        accept_changes: Whether the user has looked at the outliers and takes them.
    """
    by_plan, twice, refused = listed_once(
        rows,
        key_of=lambda row: (_key(row), row.source),
        never_true=lambda row: _never_true(row, catalogue, on_demand),
    )
    before = {_key(row): row for row in last}
    middle = middle_prices(catalogue)
    kept: dict[Key, CommitmentRow] = {}
    for plan, row in by_plan.items():
        instance = catalogue.instances[row.provider, row.instance_type]
        kin = middle.get((instance.accelerator, "on-demand"))
        kin = None if kin is None else kin * Decimal(str(instance.accelerators))
        without = on_demand.get(_place(row))
        far = None if accept_changes else _far(row, before.get(_key(row)), without, kin)
        if far is not None:
            refused.append(refusal(OUTLIER_RULE, row, far))
        elif plan not in twice:
            found = kept.get(_key(row))
            if found is None or row.usd_per_hour < found.usd_per_hour:
                kept[_key(row)] = row
    return PassedCommitments(rows=tuple(kept.values()), refused=tuple(refused))


def _never_true(
    row: CommitmentRow, catalogue: Catalogue, on_demand: Mapping[Place, Decimal]
) -> tuple[str, str] | None:
    why = why_not_sold(row, catalogue)
    if why is not None:
        return why
    ways = sold_otherwise(CURATED_DIR).get((row.provider, row.instance_type))
    if ways is not None:
        return NOT_ON_DEMAND_RULE, f"it is sold {ways} alone, and a commitment is for other hours"
    without = on_demand.get(_place(row))
    if without is not None and row.usd_per_hour > without:
        years = f"committed for {row.term_years} year(s)"
        return "committed-above-on-demand", f"{years} at ${row.usd_per_hour}, without at ${without}"
    return None


def _far(
    row: CommitmentRow, last: CommitmentRow | None, without: Decimal | None, kin: Decimal | None
) -> str | None:
    """Return why a price is an outlier; None where it is none, or nothing is there to compare."""
    # A commitment is a discount on the on-demand price, and moves with it.
    usd, most = row.usd_per_hour, LARGEST_CHANGE["on-demand"]
    if last is not None:
        known, least, what = last.usd_per_hour, 1 / most, "the last"
    elif without is not None:
        known, least, what = without, LEAST_SHARE, "the on-demand"
    elif kin is not None:
        known, least, what, most = kin, 1 / FARTHEST_FROM_KIN, "a usual", FARTHEST_FROM_KIN
    else:
        return None
    if least <= usd / known <= most:
        return None
    return f"${usd:,.2f} is {usd / known:.3g} times {what} price (${known:,.2f})"


def _place(row: CommitmentRow) -> Place:
    return row.provider, row.region, row.instance_type


def _key(row: CommitmentRow) -> Key:
    return *_place(row), row.term_years
