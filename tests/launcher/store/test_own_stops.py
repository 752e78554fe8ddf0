"""Which ends of launches count as stops, and which hours with them."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fake_engine import START, Clock
from launch_records import make_record

from gpuplan.launcher.store.launch_record import Attempt, LaunchRecord, PricedPlace
from gpuplan.launcher.store.own_stops import own_stops
from gpuplan.planner.goodput.own_stops import CountedStops, OwnStops

A100 = "A100-40GB-SXM"
SPOT_PLACE = PricedPlace(infra="aws/us-east-1", usd_per_hour=Decimal(9), spot=True)
MARKET = ("aws", "us-east-1", A100)


def attempt(outcome: Any, *, hours: float | None = 10.0, **changes: Any) -> Attempt:
    facts: dict[str, Any] = {"number": 1, "spot": False, "asked_at": START, "outcome": outcome}
    if hours is not None:
        facts |= {"began_at": START, "ended_at": START + timedelta(hours=hours)}
    return Attempt(**{**facts, **changes})


@pytest.fixture
def record(tmp_path: Path) -> Any:
    def make(*attempts: Attempt, **changes: Any) -> LaunchRecord:
        facts: dict[str, Any] = {
            "state": "ended",
            "outcome": attempts[-1].outcome,
            "accelerator": A100,
            "accelerators": 8,
            "provider": "aws",
            "attempts": attempts,
        }
        return make_record(tmp_path, Clock(), **{**facts, **changes})

    return make


def failures(record: LaunchRecord) -> tuple[float, int] | None:
    found = own_stops([record]).failures.get(A100)
    return None if found is None else (found.accelerator_hours, found.stops)


@pytest.mark.parametrize("outcome", ["succeeded", "stopped"])
def test_a_run_that_nothing_stopped_adds_its_hours(record: Any, outcome: str) -> None:
    assert failures(record(attempt(outcome))) == (80.0, 0)


@pytest.mark.parametrize(
    ("why", "counts"), [("max-cost", (80.0, 0)), ("heartbeat", None), (None, None)]
)
def test_a_limit_is_no_stop_and_a_hang_alone_may_be_anything(
    record: Any, why: str | None, counts: object
) -> None:
    assert failures(record(attempt("guarded", guard_why=why, trained=True))) == counts


@pytest.mark.parametrize("outcome", ["failed", "no-capacity", "cancelled"])
def test_the_ends_of_the_users_own_code_and_of_no_machines_do_not_count(
    record: Any, outcome: str
) -> None:
    assert failures(record(attempt(outcome))) is None


def test_lost_machines_count_once_the_run_was_taken_up_again(record: Any) -> None:
    """A job that ended while nobody looked leaves the same record as one whose machines died."""
    lost = attempt("lost")
    assert failures(record(lost)) is None
    assert failures(record(lost, attempt("no-capacity", hours=None))) is None
    assert failures(record(lost, attempt("succeeded"))) == (160.0, 1)
    assert failures(record(lost, attempt("failed"))) == (80.0, 1)


def test_a_hang_counts_once_it_was_taken_up_again_and_had_trained(record: Any) -> None:
    again = attempt("succeeded")
    hung = attempt("guarded", guard_why="heartbeat", trained=True)
    never = attempt("guarded", guard_why="heartbeat", trained=False)
    assert failures(record(hung, again)) == (160.0, 1)
    assert failures(record(never, again)) == (80.0, 0)


def test_managed_spot_jobs_count_the_recoveries_of_the_engine(record: Any) -> None:
    managed = record(
        attempt("failed", spot=True, preemptions=3), managed=True, places=(SPOT_PLACE,)
    )
    found = own_stops([managed])
    assert found.interruptions == {
        MARKET: CountedStops(runs=1, hours=10.0, accelerator_hours=80.0, stops=3)
    }
    assert not found.failures, "hours on spot machines are none of the others"


def test_spot_hours_are_left_out_where_it_is_not_known_where_they_were(record: Any) -> None:
    spot = attempt("succeeded", spot=True, preemptions=1)
    other = PricedPlace(infra="aws/us-west-2", usd_per_hour=Decimal(9), spot=True)
    on_demand = PricedPlace(infra="aws/us-east-1", usd_per_hour=Decimal(36))
    for places in ((SPOT_PLACE, other), (SPOT_PLACE, on_demand)):
        assert not own_stops([record(spot, managed=True, places=places)]).interruptions
    assert not own_stops([record(spot, managed=True, places=(SPOT_PLACE,), provider=None)]).failures


def test_old_records_and_machines_that_still_run_are_left_out(record: Any) -> None:
    assert failures(record(attempt("succeeded"), accelerators=None)) is None
    assert failures(record(attempt(None, ended_at=None), state="running")) is None


def test_runs_of_one_accelerator_add_up(record: Any) -> None:
    found = own_stops([record(attempt("succeeded")), record(attempt("stopped"), accelerators=64)])
    assert found.failures[A100] == CountedStops(
        runs=2, hours=20.0, accelerator_hours=720.0, stops=0
    )
    assert found.failures[A100].accelerators == 36


def test_launches_that_failed_before_their_first_step(record: Any) -> None:
    def shares(*records: LaunchRecord) -> tuple[int, int]:
        found: OwnStops = own_stops(records)
        return found.untrained, found.launches

    trained = record(attempt("failed", trained=True))
    not_trained = record(attempt("failed", trained=False))
    assert shares(trained, not_trained, record(attempt("failed"))) == (1, 2)
    again = record(attempt("failed", trained=False), attempt("succeeded", trained=True))
    assert shares(again) == (0, 1)
    stopped = record(attempt("stopped", trained=False))
    assert shares(stopped) == (0, 1), "by its user"
