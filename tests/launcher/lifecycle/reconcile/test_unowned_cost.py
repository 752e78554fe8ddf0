"""Machines that no open launch owned: what they cost is in the account once they are torn down."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from fake_engine import Clock, FakeEngine
from launch_records import RUN, make_context, make_record

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.reconcile.discrepancy import Discrepancy
from gpuplan.launcher.lifecycle.reconcile.reconcile import (
    LabelledMachine,
    Listing,
    reconcile,
    take_down,
)
from gpuplan.launcher.lifecycle.reconcile.unattributed import count_unattributed
from gpuplan.launcher.lifecycle.resume import down, reconcile_run, resume
from gpuplan.launcher.lifecycle.transitions import ask, attend, begin, wait_started
from gpuplan.launcher.store.accounting import closing_line, spent_usd
from gpuplan.launcher.store.launch_record import LaunchRecord, PricedPlace
from gpuplan.launcher.store.launch_sums import Wanted
from gpuplan.launcher.store.spending_limits import SpendingLimits

DAY_S = 86_400.0
OTHER = "net-20261122-120000-b2b2b2"


def closed(context: LaunchContext, folder: Path, *, managed: bool = False) -> LaunchRecord:
    """Return a launch that was closed before it got machines."""
    clock = Clock(context.now())
    begun = begin(
        context, make_record(folder, clock, managed=managed), SpendingLimits(), spot=managed
    )
    return down(context, begun)


def take_all(context: LaunchContext, listing: Listing) -> list[str]:
    """Take down every orphan; return the ids of the instances."""
    ended: list[str] = []
    for one in reconcile(context, instances=lambda: listing, owner="ann"):
        if one.is_orphan:
            take_down(
                context,
                one,
                terminate=lambda machines: ended.extend(each.instance_id for each in machines),
            )
    return ended


@pytest.mark.parametrize("way", ["reconcile", "look", "down"])
def test_a_cluster_that_came_after_its_launch_was_closed(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, way: str
) -> None:
    record = closed(context, tmp_path)
    store_id = context.ledger.store_id()
    engine.add_stray(record.cluster, record.run, store_id=store_id, owner="ann")
    engine.clock.pass_s(DAY_S)
    if way == "reconcile":
        take_all(context, Listing())
    elif way == "look":
        reconcile_run(context, record)
    else:
        down(context, record)
    after = context.ledger.get(RUN)
    spent = spent_usd(after, now=engine.clock())
    assert engine.live() == []
    assert 864 <= engine.billed_usd() <= spent <= engine.billed_usd() + 1
    engine.clock.pass_s(DAY_S)
    assert spent_usd(after, now=engine.clock()) == spent
    (summed,) = context.ledger.sums(Wanted(), "owner")
    assert (summed.spent_usd, summed.is_bound) == (spent, True)
    assert "at most" in closing_line(after, now=engine.clock())


def test_machines_of_a_managed_job_that_skypilot_left(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = closed(context, tmp_path, managed=True)
    store_id = context.ledger.store_id()
    engine.add_stray(f"{record.cluster}-7", record.run, store_id=store_id, owner="ann")
    engine.clock.pass_s(DAY_S)
    take_all(context, Listing())
    assert engine.live() == []
    assert spent_usd(context.ledger.get(RUN), now=engine.clock()) >= engine.billed_usd() > 864


@pytest.mark.parametrize("is_known_since", [True, False])
def test_instances_that_skypilot_forgot(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, is_known_since: bool
) -> None:
    record = closed(context, tmp_path)
    began_at = engine.clock()
    machines = tuple(
        LabelledMachine(
            cloud="aws",
            region="us-east-1",
            instance_id=f"i-{number}",
            instance_type="p4d.24xlarge",
            run=record.run,
            launched_at=began_at + timedelta(seconds=60) if is_known_since else None,
            store_id=context.ledger.store_id(),
            owner="ann",
        )
        for number in range(2)
    )
    engine.clock.pass_s(DAY_S)
    assert take_all(context, Listing(instances=machines)) == ["i-0", "i-1"]
    spent = spent_usd(context.ledger.get(RUN), now=engine.clock())
    assert Decimal(2 * 36 * 24) - Decimal(2) <= spent <= Decimal(2 * 36 * 24) + Decimal(2)


def test_what_is_counted_already_is_not_lost(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    begun = begin(context, make_record(tmp_path, engine.clock), SpendingLimits(), spot=False)
    ended = attend(context, wait_started(context, ask(context, begun)))
    store_id = context.ledger.store_id()
    engine.add_stray(ended.cluster, ended.run, store_id=store_id, owner="ann")
    engine.clock.pass_s(600)
    take_all(context, Listing())
    after = context.ledger.get(RUN)
    assert after.outcome == "succeeded"
    assert spent_usd(after, now=engine.clock()) >= engine.billed_usd()


@pytest.mark.parametrize("is_cluster", [True, False])
def test_machines_of_a_run_that_was_launched_again_since_they_were_found_are_left(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, is_cluster: bool
) -> None:
    record = closed(context, tmp_path)
    store_id = context.ledger.store_id()
    machine = LabelledMachine(
        cloud="aws",
        region="us-east-1",
        instance_id="i-1",
        instance_type="p4d.24xlarge",
        run=record.run,
        launched_at=None,
        store_id=store_id,
        owner="ann",
    )
    if is_cluster:
        engine.add_stray(record.cluster, record.run, store_id=store_id, owner="ann")
    listing = Listing(instances=() if is_cluster else (machine,))
    (orphan,) = reconcile(context, instances=lambda: listing, owner="ann")
    if is_cluster:
        engine.take_machines(record.cluster)
    resume(context, record, SpendingLimits())
    with pytest.raises(UsageError, match="launched again"):
        take_down(context, orphan, terminate=lambda _machines: pytest.fail("not its own"))
    assert engine.live() == [record.cluster]


@pytest.mark.parametrize("labelled", ["no-store", "copied-store"])
def test_machines_whose_owner_is_not_known_are_counted_once_they_are_torn_down(
    context: LaunchContext, engine: FakeEngine, labelled: str
) -> None:
    since = engine.clock()
    machine = LabelledMachine(
        cloud="aws",
        region="us-east-1",
        instance_id="i-0",
        instance_type="p4d.24xlarge",
        run="old-20261101-100000-0000ff",
        launched_at=since,
        store_id=None if labelled == "no-store" else context.ledger.store_id(),
        owner="ann",
    )
    engine.clock.pass_s(DAY_S)
    listing = Listing(instances=(machine,))
    (found,) = reconcile(context, instances=lambda: listing, owner="ann")
    assert found.kind == "unattributed"
    take_down(context, found, terminate=lambda _machines: None, confirmed=True)
    (kept,) = context.ledger.all()
    assert (kept.state, kept.owner, kept.run.startswith(machine.run)) == ("ended", "ann", True)
    assert kept.last is not None and kept.last.is_bound
    # 24 hours of a machine that costs more than $20 an hour on demand.
    spent = spent_usd(kept, now=engine.clock())
    assert spent >= 24 * 20
    (summed,) = context.ledger.sums(Wanted(), "owner")
    assert (summed.name, summed.spent_usd, summed.is_bound) == ("ann", spent, True)
    assert reconcile(context, owner="ann") == []


def test_a_machine_costs_what_was_planned_in_its_own_region_alone(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    elsewhere = PricedPlace(infra="gcp/europe-west12", usd_per_hour=Decimal(999))
    record = make_record(tmp_path, engine.clock).model_copy(update={"places": (elsewhere,)})
    machine = LabelledMachine(
        cloud="gcp",
        region="europe-west1",
        instance_id="1",
        instance_type="g2-standard-4",
        run=record.run,
        launched_at=engine.clock(),
    )
    found = Discrepancy(
        kind="unattributed",
        run=record.run,
        text="a machine",
        instances=(machine,),
        since=engine.clock(),
    )
    count_unattributed(context, found, record)
    (kept,) = context.ledger.all()
    assert kept.last is not None and kept.last.usd_per_hour is not None
    assert 0 < kept.last.usd_per_hour < 10


def test_machines_beside_a_run_that_trains_are_counted_beside_it(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = make_record(tmp_path, engine.clock)
    begun = ask(context, begin(context, record, SpendingLimits(), spot=False))
    running = wait_started(context, begun)
    left = LabelledMachine(
        cloud="aws",
        region="us-west-2",
        instance_id="i-left",
        instance_type="p4d.24xlarge",
        run=RUN,
        launched_at=engine.clock(),
        store_id=context.ledger.store_id(),
        owner="ann",
    )
    engine.clock.pass_s(3600)
    listing = Listing(instances=(left,), clouds=("aws",))
    _, found = reconcile(context, instances=lambda: listing, owner="ann")
    take_down(context, found, terminate=lambda _machines: None, confirmed=True)
    beside = next(one for one in context.ledger.all() if one.run != RUN)
    assert (beside.project, beside.owner) == (running.project, running.owner)
    assert spent_usd(beside, now=engine.clock()) > 20
    assert context.ledger.get(RUN).is_open and engine.live() == [running.cluster]


def test_machines_whose_price_is_not_known_are_said_to_be_in_no_account(
    tmp_path: Path, engine: FakeEngine
) -> None:
    said: list[str] = []
    context = make_context(tmp_path, engine, tell=said.append)
    machine = LabelledMachine(
        cloud="aws",
        region="us-east-1",
        instance_id="i-0",
        instance_type="no.such-type",
        run="old-1",
        launched_at=engine.clock(),
        owner="ann",
    )
    listing = Listing(instances=(machine,))
    (found,) = reconcile(context, instances=lambda: listing, owner="ann")
    take_down(context, found, terminate=lambda _machines: None, confirmed=True)
    assert "in no account, as their price is not known" in said[-1]
    assert context.ledger.all() == []
