"""A run that is launched again: what the engine has of its earlier attempts is not the newest's."""

import os
from datetime import datetime
from pathlib import Path

import pytest
from fake_engine import FakeEngine, Killed
from launch_records import RUN, make_context, make_record

from gpuplan.launcher.lifecycle.following import follow
from gpuplan.launcher.lifecycle.resume import reconcile_run, resume
from gpuplan.launcher.lifecycle.transitions import LaunchContext, ask, attend, begin, wait_started
from gpuplan.launcher.store.accounting import spent_usd
from gpuplan.launcher.store.launch_record import LaunchRecord
from gpuplan.launcher.store.spending_limits import SpendingLimits

WEEKEND_S = 60 * 3600.0


def failed(context: LaunchContext, folder: Path, engine: FakeEngine, *, managed: bool) -> None:
    """Launch a run whose first attempt fails."""
    record = make_record(folder, engine.clock, managed=managed)
    begun = begin(context, record, SpendingLimits(), spot=managed)
    record = wait_started(context, ask(context, begun))
    engine.end_job(record.cluster, "failed")
    assert not reconcile_run(context, record)[0].is_open


@pytest.mark.parametrize("managed", [False, True])
def test_an_attempt_that_was_never_asked_for_costs_nothing(
    tmp_path: Path, engine: FakeEngine, managed: bool
) -> None:
    context = make_context(tmp_path, engine)
    failed(context, tmp_path, engine, managed=managed)

    def die(_record: LaunchRecord, _at: datetime) -> None:
        raise Killed

    with pytest.raises(Killed):
        resume(
            make_context(tmp_path, engine, on_orders=die),
            context.ledger.get(RUN),
            SpendingLimits(),
        )
    paid_usd = spent_usd(context.ledger.get(RUN), now=engine.clock())
    engine.clock.pass_s(WEEKEND_S)
    after, finding = reconcile_run(context, context.ledger.get(RUN))
    assert (finding, after.outcome) == ("never-asked", "cancelled")
    assert spent_usd(after, now=engine.clock()) == paid_usd


@pytest.mark.parametrize("managed", [False, True])
def test_a_look_from_another_terminal_leaves_it_to_the_command_that_launches_it(
    tmp_path: Path, engine: FakeEngine, managed: bool
) -> None:
    context = make_context(tmp_path, engine)
    failed(context, tmp_path, engine, managed=managed)

    def look(record: LaunchRecord, _at: datetime) -> None:
        # The launching command is another process, and alive.
        context.ledger.update(
            RUN, lambda one: one.model_copy(update={"pid": os.getppid()}), what="elsewhere"
        )
        for _ in range(2):
            after, finding = reconcile_run(context, context.ledger.get(RUN))
            assert (finding, after.is_open, after.last) == ("starting", True, record.last)

    beside = make_context(tmp_path, engine, on_orders=look)
    again = resume(beside, context.ledger.get(RUN), SpendingLimits())
    assert (again.state, len(engine.live())) == ("running", 1)
    ended = attend(context, again)
    assert (ended.outcome, engine.live(), len(engine.books)) == ("succeeded", [], 2)
    assert spent_usd(ended, now=engine.clock()) >= engine.billed_usd()


def test_a_request_that_nobody_kept_is_not_taken_for_the_next_attempts(
    tmp_path: Path, engine: FakeEngine
) -> None:
    context = make_context(tmp_path, engine)
    record = make_record(tmp_path, engine.clock)
    ask(context, begin(context, record, SpendingLimits(), spot=False))
    asked = context.ledger.update(
        RUN, lambda one: one.with_last(request_id=None), what="never written"
    )
    engine.no_capacity = True
    engine.finish_requests()
    assert reconcile_run(context, asked)[0].outcome == "no-capacity"
    engine.no_capacity = False
    begun = context.ledger.begin_attempt(RUN, SpendingLimits(), spot=False)
    assert reconcile_run(context, begun)[1] == "never-asked"


def test_a_job_of_a_new_controller_may_have_the_number_of_an_earlier_one(
    tmp_path: Path, engine: FakeEngine
) -> None:
    context = make_context(tmp_path, engine)
    failed(context, tmp_path, engine, managed=True)
    engine.forget_managed()
    engine.clock.pass_s(3600)
    again = resume(context, context.ledger.get(RUN), SpendingLimits())
    assert again.attempts[0].job_id == again.attempts[1].job_id
    assert reconcile_run(context, again)[1] == "training"
    assert follow(context, again).outcome == "succeeded"
