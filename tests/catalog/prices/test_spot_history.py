"""Spot prices over time: of every snapshot, each with its own day, and nothing that is none."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.catalog.price_folder import snapshot_file
from gpuplan.catalog.prices.files import write_snapshot
from gpuplan.catalog.prices.snapshot import PriceSnapshot
from gpuplan.catalog.prices.spot_history import spot_history
from gpuplan.catalog.types import Offer

P5 = ("aws", "us-east-1", "p5.48xlarge")
FIRST = datetime(2026, 11, 1, tzinfo=UTC)
OFFER = next(
    one
    for one in embedded_catalogue().offers
    if (one.provider, one.region, one.instance_type) == P5
)


def keep(days: int, usd: str, **changes: object) -> None:
    """Keep a snapshot so many days later, with one spot price."""
    at = FIRST + timedelta(days=days)
    given = {
        "spot_usd_per_hour": Decimal(usd),
        "spot_is_market": True,
        "price_date": at.date(),
        "note": None,
    }
    offer: Offer = OFFER.model_copy(update={**given, **changes})
    write_snapshot(PriceSnapshot(gpuplan_version="1", made_at=at, providers=(), offers=(offer,)))


def test_each_price_is_of_its_day() -> None:
    keep(0, "20.5")
    keep(2, "22.25")
    keep(5, "21")
    assert spot_history({P5}) == {
        P5: {
            date(2026, 11, 1): Decimal("20.5"),
            date(2026, 11, 3): Decimal("22.25"),
            date(2026, 11, 6): Decimal("21"),
        }
    }
    assert spot_history([]) == {}
    assert spot_history({("aws", "us-east-1", "p4d.24xlarge")}) == {}


def test_what_was_kept_or_is_no_price_of_the_market_is_left_out() -> None:
    keep(0, "20")
    keep(1, "20", price_date=date(2026, 11, 1))
    keep(2, "20", note="a note; spot price of 2026-11-01: a list")
    keep(3, "20", spot_is_market=False)
    snapshot_file(FIRST + timedelta(days=4)).write_text("{torn")
    assert spot_history({P5}) == {P5: {date(2026, 11, 1): Decimal("20")}}
