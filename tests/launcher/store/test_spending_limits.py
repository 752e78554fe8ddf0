"""What a limit on spending counts, and what it refuses."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from fake_engine import START, Clock
from launch_records import make_record

from gpuplan.catalog.errors import LimitError
from gpuplan.launcher.store.accounting import spent_in_usd
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.launch_record import Attempt
from gpuplan.launcher.store.launches import Ledger
from gpuplan.launcher.store.spending_limits import SpendingLimits, refuse_beyond


@pytest.mark.parametrize(
    ("limits", "changes", "is_refused"),
    [
        (SpendingLimits(project_usd=Decimal("119.99")), {}, True),
        (SpendingLimits(project_usd=Decimal("120.00")), {}, False),
        (SpendingLimits(project_usd=Decimal(100)), {"project": "another"}, False),
        (SpendingLimits(project_usd=Decimal(100)), {"project": "NET_"}, True),
        (SpendingLimits(owner_usd=Decimal(100)), {"project": "another"}, True),
        (SpendingLimits(owner_usd=Decimal(100)), {"owner": "ANN"}, True),
        (SpendingLimits(owner_usd=Decimal(100)), {"owner": "bob"}, False),
        (SpendingLimits(owner_usd=Decimal(100)), {"owner": "ANN"}, True),
        (SpendingLimits(project_usd=Decimal(100)), {"project": "Net"}, True),
        (SpendingLimits(month_usd=Decimal(100)), {"owner": "bob", "project": "another"}, True),
        (SpendingLimits(month_usd=Decimal(100)), {"created_at": START - timedelta(days=30)}, True),
        (SpendingLimits(month_usd=Decimal(100)), {"state": "ended"}, False),
        (SpendingLimits(), {}, False),
    ],
)
def test_what_a_limit_counts(
    tmp_path: Path, limits: SpendingLimits, changes: dict[str, object], is_refused: bool
) -> None:
    other = make_record(tmp_path, Clock(), run="net-20261121-120000-0dd0dd", **changes)
    wanted = make_record(tmp_path, Clock())
    if is_refused:
        with pytest.raises(LimitError, match="has committed"):
            refuse_beyond(wanted, [other], limits, now=START)
    else:
        refuse_beyond(wanted, [other], limits, now=START)


def test_a_launch_of_unknown_length_needs_a_bound_where_there_is_a_limit(tmp_path: Path) -> None:
    unknown = make_record(tmp_path, Clock(), reserved_usd=None)
    refuse_beyond(unknown, [], SpendingLimits(), now=START)
    with pytest.raises(LimitError, match="how long this job runs is not known"):
        refuse_beyond(unknown, [], SpendingLimits(month_usd=Decimal(1000)), now=START)


def test_an_open_launch_that_nothing_bounds_is_not_counted_as_what_it_has_spent(
    tmp_path: Path,
) -> None:
    still = make_record(tmp_path, Clock(), run="net-20261121-120000-0dd0dd", reserved_usd=None)
    wanted = make_record(tmp_path, Clock())
    limits = SpendingLimits(month_usd=Decimal(1000))
    with pytest.raises(LimitError, match="nothing bounds what net-20261121-120000-0dd0dd") as said:
        refuse_beyond(wanted, [still], limits, now=START)
    assert "gpuplan stop net-20261121-120000-0dd0dd" in (said.value.fix or "")
    ended = still.model_copy(update={"state": "ended"})
    refuse_beyond(wanted, [ended], limits, now=START)
    refuse_beyond(wanted, [still], SpendingLimits(), now=START)


def test_of_many_launches_at_once_no_more_are_kept_than_the_limit_allows(tmp_path: Path) -> None:
    limits = SpendingLimits(month_usd=Decimal(250))
    clock = Clock()

    def launch(number: int) -> bool:
        ledger = Ledger(Store(tmp_path / "store.sqlite3"), now=clock)
        try:
            ledger.reserve(make_record(tmp_path, clock, run=f"net-{number:06x}"), limits)
        except LimitError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        kept = list(threads.map(launch, range(12)))
    assert sum(kept) == 4  # 4 x $60 is below $250, 5 x $60 is not.
    assert len(Ledger(Store(tmp_path / "store.sqlite3"), now=clock).all()) == 4


def test_a_month_counts_what_is_spent_in_it(tmp_path: Path) -> None:
    """A launch of November that goes on in December draws on December's limit."""
    december = datetime(2026, 12, 1, tzinfo=UTC)
    attempt = Attempt(
        number=1,
        spot=False,
        usd_per_hour=Decimal(5),
        asked_at=december - timedelta(hours=10),
        began_at=december - timedelta(hours=6),
        ended_at=december + timedelta(hours=2),
    )
    facts = {"state": "ended", "attempts": (attempt,), "reserved_usd": Decimal(100)}
    other = make_record(tmp_path, Clock(), run="net-20261121-120000-0dd0dd", **facts)
    now = december + timedelta(days=3)
    assert spent_in_usd(other, "2026-11", now=now) == 30
    assert spent_in_usd(other, "2026-12", now=now) == 10
    assert spent_in_usd(other, "2027-01", now=now) == 0
    wanted = make_record(tmp_path, Clock())
    refuse_beyond(wanted, [other], SpendingLimits(month_usd=Decimal(70)), now=now)
    with pytest.raises(LimitError, match="month 2026-12 has committed .10.00 of its .69.00"):
        refuse_beyond(wanted, [other], SpendingLimits(month_usd=Decimal(69)), now=now)
    # Going on itself: of its 100 at worst, 40 are spent, 30 of them in November.
    refuse_beyond(other, [], SpendingLimits(month_usd=Decimal(70)), now=now)
    with pytest.raises(LimitError, match="At worst this costs .70.00; month 2026-12"):
        refuse_beyond(other, [], SpendingLimits(month_usd=Decimal("69.99")), now=now)


def test_what_the_guard_counted_without_machines_is_in_the_month_of_the_request(
    tmp_path: Path,
) -> None:
    attempt = Attempt(number=1, spot=False, asked_at=START, counted_usd=Decimal(7))
    record = make_record(tmp_path, Clock(), attempts=(attempt,))
    assert spent_in_usd(record, "2026-11", now=START) == 7
    assert spent_in_usd(record, "2026-12", now=START) == 0
