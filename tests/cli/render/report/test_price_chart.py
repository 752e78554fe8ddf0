from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.listing.price_changes import PriceHistory, PricePoint
from gpuplan.cli.render.market.price_chart import history_svg


def point(day: int, usd: str, spot: str | None = None) -> PricePoint:
    return PricePoint(
        made_at=datetime(2026, 11, day, 12, tzinfo=UTC),
        day=date(2026, 11, day),
        provider="aws",
        accelerator="H100-80GB-SXM",
        accelerators=8,
        on_demand_usd_per_hour=Decimal(usd),
        spot_usd_per_hour=None if spot is None else Decimal(spot),
        on_demand_region="us-east-1",
        spot_region=None,
    )


def test_a_line_for_each_way_of_buying() -> None:
    points = (point(1, "55.04", "20"), point(9, "31.50"))
    text = history_svg(PriceHistory(accelerator="H100:8", points=points))
    assert text.startswith("<svg") and ">aws<" in text and ">aws spot<" in text
    assert "2026-11-0" in text


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(UsageError, match="No price"):
        history_svg(PriceHistory(accelerator="H100:8", points=()))
