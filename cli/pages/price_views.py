"""What the page about prices shows: the lowest of each accelerator, and how old they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from markupsafe import Markup

from ... import api
from ...catalog.listing.accelerators import AcceleratorLine
from ...catalog.listing.offers import BestPrice, OfferLine
from ...catalog.text.money import format_price
from ...catalog.text.quantity import UNKNOWN
from .drawing import Bar, bars
from .page import Amount, Cell, Figure, Rows, View

MOST_BARS = 16
"""Accelerators of the chart: those with the most offers; the table has all."""


def prices(today: date) -> View:
    """Return the lowest price of every accelerator, and how old the prices of each seller are."""
    listed = api.gpus()
    offers = api.offers(everything=True).offers
    sellers = sorted({one.provider for one in offers})
    of_seller = {name: [one for one in offers if one.provider == name] for name in sellers}
    priced = [one for one in listed.accelerators if one.on_demand or one.spot]
    return View(
        title="Prices and their ages",
        subtitle=f"Snapshot of {listed.snapshot_date}; list prices, without your pricebook",
        commands=("gpuplan gpus", "gpuplan offers --all"),
        blocks=(
            Figure(
                caption="Lowest on-demand price of one accelerator and hour, of those most offered",
                svg=_price_bars(priced),
                is_wide=False,
                empty="No price is known.",
            ),
            Figure(
                caption="Age of the newest price of each seller, a line to that of the oldest",
                svg=_age_bars(of_seller, today),
                is_wide=False,
                empty="No price is dated.",
            ),
            Rows(
                caption="Lowest price of one accelerator and hour",
                headings=("accelerator", ">on demand", "seller", ">age", ">spot", "seller", ">age"),
                rows=tuple(
                    (one.name, *_best(one.on_demand, today), *_best(one.spot, today))
                    for one in priced
                ),
                empty="No price is known.",
            ),
            Rows(
                caption="Age of the prices, by seller",
                headings=("seller", ">offers", ">without a price", "oldest", "newest", ">age"),
                rows=tuple(_seller_row(name, of_seller[name], today) for name in sellers),
                empty="No offer is known.",
            ),
        ),
    )


def _price_bars(priced: Sequence[AcceleratorLine]) -> Markup | None:
    shown = [one for one in priced if one.on_demand is not None]
    shown = sorted(shown, key=lambda one: -one.offers)[:MOST_BARS]
    found = [(one.name, one.on_demand) for one in shown if one.on_demand is not None]
    found.sort(key=lambda one: -one[1].usd_per_accelerator_hour)
    rows = [
        Bar(
            name=name,
            size=float(best.usd_per_accelerator_hour),
            text=format_price(best.usd_per_accelerator_hour),
            kind="c1",
        )
        for name, best in found
    ]
    return bars(rows, label="Lowest on-demand prices; the table below has all.")


def _age_bars(of_seller: Mapping[str, Sequence[OfferLine]], today: date) -> Markup | None:
    ages = {name: ends for name, rows in of_seller.items() if (ends := _ages(rows, today))}
    rows = [
        Bar(name=name, size=newest, text=_days(newest), low=newest, high=oldest, kind="c1")
        for name, (newest, oldest) in sorted(ages.items(), key=lambda item: -item[1][0])
    ]
    return bars(rows, label="Age of the prices of each seller; the table below has the dates.")


def _best(price: BestPrice | None, today: date) -> tuple[Cell, Cell, Cell]:
    if price is None:
        return Amount(UNKNOWN, None), UNKNOWN, Amount(UNKNOWN, None)
    seller = f"{price.provider} {price.region} {price.instance_type}"
    usd = price.usd_per_accelerator_hour
    return Amount(format_price(usd), usd), seller, _age(price.price_date, today)


def _seller_row(name: str, offers: Sequence[OfferLine], today: date) -> tuple[Cell, ...]:
    priced = [one for one in offers if _is_priced(one)]
    dates = [one.price_date for one in priced if one.price_date is not None]
    ends = (str(min(dates)), str(max(dates))) if dates else (UNKNOWN, UNKNOWN)
    without = len(offers) - len(priced)
    return (
        name,
        Amount(f"{len(offers):,}", len(offers)),
        Amount(f"{without:,}", without),
        *ends,
        _age(max(dates, default=None), today),
    )


def _is_priced(offer: OfferLine) -> bool:
    return offer.on_demand_usd_per_hour is not None or offer.spot_usd_per_hour is not None


def _ages(offers: Sequence[OfferLine], today: date) -> tuple[int, int] | None:
    """Return how many days old the newest and the oldest price are; None where none is dated."""
    days = [
        max(0, (today - one.price_date).days)
        for one in offers
        if _is_priced(one) and one.price_date is not None
    ]
    return (min(days), max(days)) if days else None


def _age(day: date | None, today: date) -> Amount:
    """Return how many days old a price is; a clock that is behind makes none younger than 0."""
    days = None if day is None else max(0, (today - day).days)
    return Amount(UNKNOWN if days is None else _days(days), days)


def _days(days: int) -> str:
    return "1 day" if days == 1 else f"{days:,} days"
