"""How a price snapshot is named beside an answer."""

from datetime import UTC, datetime, timedelta

import pytest

from gpuplan.catalog.listing.sources import PriceSource

MADE = datetime(2026, 11, 25, 14, 55, 41, 877007, tzinfo=UTC)


@pytest.mark.parametrize(
    ("age", "said"),
    [
        # An answer is dated to the second: to one made within the same, prices seem to be younger.
        (timedelta(microseconds=-877007), "now"),
        (timedelta(), "now"),
        (timedelta(seconds=59), "now"),
        (timedelta(minutes=3), "3 min ago"),
        (timedelta(days=2), "2 days ago"),
        (timedelta(hours=-1), "at 2026-11-25 14:55 UTC"),
    ],
)
def test_the_age_of_refreshed_prices_is_told(age: timedelta, said: str) -> None:
    source = PriceSource(kind="refreshed", made_at=MADE, fresh=("aws",))
    assert source.text(MADE + age) == f"aws refreshed {said}"
