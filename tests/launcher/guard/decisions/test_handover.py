"""When a run leaves spot machines for its deadline: neither too late nor for nothing."""

from dataclasses import replace
from pathlib import Path

from guards import NOW_S, make_account, make_orders
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.launcher.guard.decisions.handover import hand_over
from gpuplan.launcher.guard.decisions.session import ASK, Session
from gpuplan.launcher.guard.decisions.verdicts import Reading
from gpuplan.launcher.guard.folder import saved_step
from gpuplan.launcher.guard.orders import HandOver
from gpuplan.launcher.runner.checkpoint.folder import NAME, RUN_FILE

WANTED = HandOver(total_steps=1000, step_s=2.0, restart_s=600.0)
HALF = Reading(step=500, saved_step=480, trained=500, times_s=(1.0,) * 30, settled=30)


def test_it_stays_while_there_is_time_for_two_starts() -> None:
    enough_s = 2 * 600.0 + 520 * 1.0
    orders = make_orders(hand_over=WANTED, deadline_s=NOW_S + enough_s)
    assert hand_over(orders, HALF, now_s=NOW_S) is None
    verdict = hand_over(orders, HALF, now_s=NOW_S + 1)
    assert verdict is not None
    assert (verdict.why, verdict.exit_code) == ("hand-over", 0)
    assert "in 29 minutes" in verdict.text


def test_a_run_that_is_slower_than_its_steps_moves_earlier() -> None:
    slower = replace(WANTED, slower=1.25)
    enough_s = 2 * 600.0 + 520 * 1.25
    orders = make_orders(hand_over=slower, deadline_s=NOW_S + enough_s)
    assert hand_over(orders, HALF, now_s=NOW_S) is None
    assert hand_over(orders, HALF, now_s=NOW_S + 1) is not None
    as_steps = make_orders(hand_over=WANTED, deadline_s=NOW_S + enough_s)
    assert hand_over(as_steps, HALF, now_s=NOW_S + 1) is None


def test_a_session_asks_its_command_to_stop_once_it_trains() -> None:
    orders = make_orders(hand_over=WANTED, deadline_s=NOW_S + 1300.0)
    session = Session(orders, make_account(orders))
    waiting = replace(HALF, trained=0)
    assert session.tick(paid_s=90, running_s=90, reading=waiting) is None, "nobody would hear it"
    trains = replace(HALF, alive_at_s=100.0)
    assert session.tick(paid_s=100, running_s=100, reading=trains) == ASK
    assert session.verdict is not None and session.verdict.why == "hand-over"


def test_a_time_that_was_not_measured_is_the_predicted_one() -> None:
    orders = make_orders(hand_over=WANTED, deadline_s=NOW_S + 2 * 600.0 + 1030.0)
    first = Reading(step=481, saved_step=480, trained=1)
    assert hand_over(orders, first, now_s=NOW_S) is not None
    assert hand_over(orders, replace(HALF, step=481), now_s=NOW_S) is None


@given(
    left_s=st.floats(-1000, 1e6),
    saved=st.integers(0, 1000),
    since=st.integers(0, 100),
    step_s=st.floats(0.001, 100),
    restart_s=st.floats(0, 4000),
)
def test_it_hands_over_before_a_loss_could_cost_the_deadline_and_only_where_it_gains(
    left_s: float, saved: int, since: int, step_s: float, restart_s: float
) -> None:
    orders = make_orders(hand_over=replace(WANTED, restart_s=restart_s), deadline_s=NOW_S + left_s)
    step = min(1000, saved + since)
    reading = Reading(step=step, saved_step=saved, trained=1, times_s=(step_s,))
    verdict = hand_over(orders, reading, now_s=NOW_S)
    slack_s = 1e-3
    if verdict is not None:
        assert left_s + slack_s >= restart_s + (1000 - step) * step_s, (
            "there is no more time for it"
        )
    elif step < 1000 and left_s > restart_s + (1000 - step) * step_s:
        assert left_s + slack_s >= 2 * restart_s + (1000 - saved) * step_s


def test_without_a_deadline_or_other_machines_it_stays() -> None:
    assert hand_over(make_orders(hand_over=WANTED), HALF, now_s=NOW_S) is None
    assert hand_over(make_orders(deadline_s=NOW_S), HALF, now_s=NOW_S) is None
    done = replace(HALF, step=1000, saved_step=1000)
    late = make_orders(hand_over=WANTED, deadline_s=NOW_S + 700.0)
    assert hand_over(late, done, now_s=NOW_S) is None, "it has all its steps"


def test_the_newest_checkpoint_is_the_one_that_the_runner_has_named(tmp_path: Path) -> None:
    assert saved_step(tmp_path) == 0
    for step in (20, 40, 1_000_000_000):
        folder = tmp_path / "checkpoints" / NAME.format(step)
        folder.mkdir(parents=True)
        if step != 40:
            (folder / RUN_FILE).write_text("{}")
    (tmp_path / "checkpoints" / ".step-00000060").mkdir()
    assert saved_step(tmp_path) == 1_000_000_000
