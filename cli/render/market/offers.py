"""The answers of `gpuplan offers` as table, markdown, CSV or JSON."""

from __future__ import annotations

from ....catalog.listing.no_match import no_match_text
from ....catalog.listing.offers import OfferLine, OfferList
from ....catalog.listing.price_gaps import PriceGap, gap_of, missing_types
from ....catalog.names import listed_instance
from ....catalog.types import ACCELERATOR_ALONE
from ....catalog.units import GIB, GIGABIT_BYTES
from ...terminal.output import Screen
from ..text.answer import (
    APART,
    APART_LEGEND,
    LEGEND,
    UNKNOWN,
    count_text,
    dated,
    figure,
    to_csv,
    to_json,
    usd_text,
    with_notes,
)
from ..text.grid import Column, Grid


def render_offers(listed: OfferList, form: str, screen: Screen) -> str:
    """Return the offers in one of the four forms."""
    if form == "json":
        return to_json(listed)
    if form == "csv":
        return to_csv(OfferLine, listed.offers)
    grid = Grid(_COLUMNS, [_offer_cells(line) for line in listed.offers])
    return with_notes(grid, _offer_notes(listed), form, screen)


_COLUMNS = [
    Column("provider"),
    Column("region", from_width=64),
    Column("instance", shrink=True),
    Column("accelerators", shrink=True),
    Column("$/h", right=True),
    Column("$/acc·h", right=True, from_width=74),
    Column("spot $/h", right=True, from_width=90),
    Column("node to node", right=True, from_width=120),
    Column("vCPU", right=True, from_width=140),
    Column("GiB", right=True, from_width=140),
    Column("priced", right=True, from_width=130),
]


NO_SPOT = "none"


def _offer_cells(line: OfferLine) -> list[str]:
    spot = NO_SPOT if _is_not_sold(line) else usd_text(line.spot_usd_per_hour)
    if line.spot_usd_per_hour is not None and not line.spot_is_market:
        spot = f"({spot})"
    return [
        line.provider + ("*" if line.marketplace else ""),
        line.region,
        listed_instance(line.provider, line.instance_type),
        f"{count_text(line.accelerators_per_node)} × {line.accelerator}"  # noqa: RUF001
        + ("" if line.has_spec else " ?"),
        _at_least(line, usd_text(line.on_demand_usd_per_hour)),
        usd_text(line.on_demand_usd_per_accelerator_hour),
        _at_least(line, spot),
        _network(line),
        figure(line.vcpus, 1, ",.0f"),
        figure(line.memory_bytes, GIB, ",.0f"),
        _priced(line),
    ]


def _at_least(line: OfferLine, price: str) -> str:
    """Return a price, marked where vCPUs and memory are billed beside it."""
    is_apart = line.price_basis == ACCELERATOR_ALONE and price not in (UNKNOWN, NO_SPOT)
    return f"{APART}{price}" if is_apart else price


def _is_not_sold(line: OfferLine) -> bool:
    """Return whether there is no spot price because the type is not sold so."""
    return line.spot_usd_per_hour is None and line.spot_status == "not sold"


def _offer_notes(listed: OfferList) -> list[str]:
    shown = len(listed.offers)
    count = f"{shown:,} of {listed.matched:,} offers"
    if shown == listed.matched:
        count = "1 offer" if shown == 1 else f"{shown:,} offers"
    if not listed.matched:
        count = no_match_text(listed)
    notes = [count]
    if listed.unpriced:
        notes.append(f"{listed.unpriced:,} without a price")
    left_out = []
    if listed.left_out_marketplaces:
        left_out.append(f"{listed.left_out_marketplaces:,} of marketplaces")
    if listed.left_out_slices:
        left_out.append(f"{listed.left_out_slices:,} of slices of a device")
    if left_out:
        notes.append(f"{' and '.join(left_out)} left out (--all)")
    lines = ["; ".join(notes) + "."]
    for line in listed.offers:
        if line.break_even is not None:
            lines.append(_break_even(line))
    legend = [LEGEND]
    if any(line.marketplace for line in listed.offers):
        legend.append("* marketplace: other people's machines, often gone")
    if any(not line.has_spec for line in listed.offers):
        legend.append("? no spec row: listed, not planned on")
    if any(map(_is_not_sold, listed.offers)):
        legend.append(f"{NO_SPOT}: not sold as spot")
    if any(line.price_basis == ACCELERATOR_ALONE for line in listed.offers):
        legend.append(APART_LEGEND)
    if any(line.spot_usd_per_hour and not line.spot_is_market for line in listed.offers):
        legend.append("( ) a spot price that promises no discount")
    if listed.offers:
        lines.append("; ".join(legend) + ".")
    lines += _gaps(listed)
    lines.append(dated(listed.snapshot_date, listed.oldest_price, listed.newest_price))
    return lines


def _gaps(listed: OfferList) -> list[str]:
    """Return why prices, or whole types, are missing where that is known; each once."""
    found: list[PriceGap | None] = [] if listed.offers else [*missing_types(listed.asked)]
    for line in listed.offers:
        if line.on_demand_usd_per_hour is None:
            found.append(gap_of(line.provider, line.instance_type, "on-demand"))
        if line.spot_usd_per_hour is None and not _is_not_sold(line):
            found.append(gap_of(line.provider, line.instance_type, "spot"))
    texts: dict[str, list[str]] = {}
    for gap in dict.fromkeys(one for one in found if one is not None):
        what = f"{gap.provider} {gap.instance_type}"
        texts.setdefault(gap.text, []).append(
            what if gap.missing == "type" else f"{what} {gap.missing}"
        )
    return [f"{', '.join(which)}: {text}." for text, which in texts.items()]


def _break_even(line: OfferLine) -> str:
    assert line.break_even is not None
    outcome = (
        f"has paid off in month {line.break_even.month}"
        if line.break_even.month is not None
        else "does not pay off within its life"
    )
    rental = usd_text(line.break_even.rental_usd_per_hour)
    return (
        f"{line.provider} {line.instance_type}, bought, {outcome}, "
        f"against {line.break_even.against} at ${rental}/h for as many."
    )


def _network(line: OfferLine) -> str:
    if line.inter_link_bytes_per_s is None:
        return UNKNOWN
    return f"{line.inter_link_bytes_per_s / GIGABIT_BYTES:,.0f} Gbit/s"


def _priced(line: OfferLine) -> str:
    if line.price_date is None:
        return UNKNOWN
    if line.on_demand_usd_per_hour is None and line.spot_usd_per_hour is None:
        return "no price"
    digits = {"year": 4, "month": 7}.get(line.price_date_precision or "", 10)
    return line.price_date.isoformat()[:digits]
