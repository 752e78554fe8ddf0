"""A launch whose SkyPilot is gone for good is closed on the user's word, and nothing is claimed."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from fake_engine import START, FakeEngine
from launch_records import RUN, launched, make_context, make_record

from gpuplan.catalog.errors import LimitError, UsageError
from gpuplan.launcher.labels import slug
from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.engine import EngineError, NoEngineError
from gpuplan.launcher.lifecycle.observing.elsewhere import ElsewhereError
from gpuplan.launcher.lifecycle.reconcile.reconcile import LabelledMachine, Listing, reconcile
from gpuplan.launcher.lifecycle.resume import down, resume
from gpuplan.launcher.store.accounting import (
    attempt_usd,
    closing_line,
    committed_usd,
    spent_usd,
)
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.launch_record import EngineAddress, LaunchRecord, PricedPlace
from gpuplan.launcher.store.launch_sums import Wanted, launch_sums
from gpuplan.launcher.store.spending_limits import SpendingLimits

GONE = EngineAddress(server="http://127.0.0.1:46912", home="/home/ann/.gpuplan-sky", user="5a5a")
HERE = EngineAddress(server="http://127.0.0.1:46580", home="/home/ann", user="5a5a")
WEEK_S = 7 * 24 * 3600.0


@pytest.fixture
def engine(engine: FakeEngine) -> FakeEngine:
    engine.at = GONE
    return engine


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def other(tmp_path: Path, engine: FakeEngine, said: list[str]) -> LaunchContext:
    """Return the same store beside a SkyPilot that never heard of its launches."""
    return make_context(tmp_path, FakeEngine(engine.clock, at=HERE), tell=said.append)


def closed(other: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    other.engine.clock.pass_s(WEEK_S)  # type: ignore[attr-defined]
    return down(other, record, is_engine_gone=True)


def test_it_is_closed_at_least_at_what_was_seen_and_limits_count_its_worst_case(
    tmp_path: Path, context: LaunchContext, other: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    seen_at = max(at for at, _ in context.ledger.events(RUN))
    with pytest.raises(ElsewhereError, match=f"gpuplan down {RUN} --skypilot-is-gone"):
        down(other, record)
    after = closed(other, record)
    now = other.now()
    assert (after.state, after.outcome) == ("ended", "lost")
    assert after.last is not None and after.last.unknown_from == seen_at
    assert Decimal(0) < spent_usd(after, now=now) < 2
    assert committed_usd(after, now=now) == record.reserved_usd == 60
    assert "is not known" in (after.why or "")
    assert closing_line(after, now=now).startswith("spent at least $1.")
    assert engine.live() == [record.cluster], "nothing is ended"
    assert down(other, record, is_engine_gone=True) == after, "a second call does nothing"
    with pytest.raises(LimitError):
        other.ledger.reserve(
            make_record(tmp_path, engine.clock, run="net-20261129-120000-b2c3d4"),
            SpendingLimits(month_usd=Decimal(119)),
        )
    engine.clock.pass_s(5 * WEEK_S)
    other.ledger.reserve(
        make_record(tmp_path, engine.clock, run="net-20270103-120000-b2c3d4"),
        SpendingLimits(month_usd=Decimal(60)),
    )


def test_it_says_how_to_find_the_machines_in_their_cloud(
    tmp_path: Path,
    context: LaunchContext,
    other: LaunchContext,
    engine: FakeEngine,
    said: list[str],
) -> None:
    places = tuple(
        PricedPlace(infra=one, usd_per_hour=Decimal(36))
        for one in ("aws/us-east-1", "gcp/us-central1", "azure/eastus", "k8s/lab", "lambda/us")
    )
    record = launched(context, make_record(tmp_path, engine.clock, places=places, managed=True))
    closed(other, record)
    told = "\n".join(said)
    assert f"gpuplan-run={slug(RUN)}, and their names begin with {record.cluster}" in told
    assert f"--region us-east-1 --filters Name=tag:gpuplan-run,Values={slug(RUN)}" in told
    assert "aws ec2 terminate-instances --region us-east-1 --instance-ids" in told
    assert f"gcloud compute instances list --filter=labels.gpuplan-run={slug(RUN)}" in told
    assert f"az resource list --tag gpuplan-run={slug(RUN)}" in told
    assert "kubectl --context lab delete pods --all-namespaces --selector gpuplan-run=" in told
    assert "lambda: look in its console" in told
    assert "sky-jobs-controller-" in told
    assert "Nothing was ended. Limits count $60.00 for it" in told


def test_a_launch_that_aws_lists_stays_open(
    tmp_path: Path, context: LaunchContext, other: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    listing = replace(other, listed=lambda _record: ("i-0abc in us-east-1",))
    with pytest.raises(EngineError, match="AWS lists: i-0abc in us-east-1") as refused:
        closed(listing, record)
    assert "aws ec2 terminate-instances --region us-east-1" in str(refused.value.fix)
    assert context.ledger.get(RUN).is_open


def test_machines_that_are_listed_later_are_orphans(
    tmp_path: Path, context: LaunchContext, other: LaunchContext, engine: FakeEngine
) -> None:
    closed(other, launched(context, make_record(tmp_path, engine.clock)))
    found = LabelledMachine(
        cloud="aws",
        region="us-east-1",
        instance_id="i-0abc",
        instance_type="p4d.24xlarge",
        run=slug(RUN),
        launched_at=START,
        store_id=context.ledger.store_id(),
        owner="ann",
    )
    listing = Listing(instances=(found,), clouds=("aws",))
    kinds = [one.kind for one in reconcile(other, instances=lambda: listing, owner="ann")]
    assert kinds == ["orphan-instance"]


def test_a_skypilot_that_can_be_asked_ends_the_machines(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    after = down(context, record, is_engine_gone=True)
    assert (after.outcome, engine.live()) == ("stopped", [])
    assert after.last is not None and after.last.unknown_from is None


def test_no_skypilot_at_all_closes_it_too(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))

    def unreachable(_name: str) -> None:
        raise NoEngineError("SkyPilot's server cannot be reached.")

    monkeypatch.setattr(engine, "requests", unreachable)
    with pytest.raises(NoEngineError):
        down(context, record)
    assert down(context, record, is_engine_gone=True).outcome == "lost"


def test_one_whose_machines_nobody_saw_and_nothing_bounds_counts_until_it_was_closed(
    tmp_path: Path, context: LaunchContext, other: LaunchContext, engine: FakeEngine
) -> None:
    record = make_record(tmp_path, engine.clock, reserved_usd=None, usd_worst=None)
    begun = context.ledger.begin_attempt
    context.ledger.reserve(record, SpendingLimits())
    record = begun(RUN, SpendingLimits(), spot=False)
    record = context.ledger.update(
        RUN,
        lambda one: one.with_last(engine=GONE).model_copy(update={"state": "requested"}),
        what="requested",
    )
    after = closed(other, record)
    assert after.last is not None
    hours = Decimal(str((after.last.ended_at - after.last.asked_at) / timedelta(hours=1)))  # type: ignore[operator]
    assert attempt_usd(after, after.last, now=other.now()) == 0
    assert committed_usd(after, now=other.now()) == pytest.approx(36 * hours, abs=Decimal("0.02"))
    assert "nothing was rented" not in closing_line(after, now=other.now())


def test_it_is_not_resumed_and_its_sum_is_the_least(
    tmp_path: Path, context: LaunchContext, other: LaunchContext, engine: FakeEngine
) -> None:
    after = closed(other, launched(context, make_record(tmp_path, engine.clock)))
    with pytest.raises(UsageError, match="may still train"):
        resume(other, after, SpendingLimits())
    (whole,) = launch_sums(Store(tmp_path / "store.sqlite3"), Wanted(), "owner", now=other.now())
    assert (whole.is_unknown, whole.is_bound) == (True, False)
    assert whole.spent_usd == spent_usd(after, now=other.now())
