"""The planner's rule of the hand-over is the guard's."""

from guards import NOW_S, make_orders
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.launcher.guard.decisions import handover
from gpuplan.launcher.guard.decisions.verdicts import Reading
from gpuplan.launcher.guard.orders import HandOver
from gpuplan.planner.goodput.deadline.hand_over import RESTARTS, gains_by_moving, stays_on_spot

steps = st.integers(0, 1000)


@given(
    left_s=st.integers(-1000, 10_000),
    restart_s=st.integers(0, 3000),
    step_s=st.sampled_from([0.25, 1.0, 4.0]),
    done=steps,
    unsaved=steps,
)
def test_both_decide_alike(
    left_s: int, restart_s: int, step_s: float, done: int, unsaved: int
) -> None:
    saved = max(0, done - unsaved)
    wanted = HandOver(total_steps=1001, step_s=9.0, restart_s=float(restart_s))
    orders = make_orders(hand_over=wanted, deadline_s=NOW_S + left_s)
    reading = Reading(step=done, saved_step=saved, trained=1, times_s=(step_s,) * 5, settled=5)
    stays = stays_on_spot(left_s, saved_rest_s=(1001 - saved) * step_s, slowest_restart_s=restart_s)
    gains = gains_by_moving(left_s, rest_s=(1001 - done) * step_s, slowest_restart_s=restart_s)
    guard = handover.hand_over(orders, reading, now_s=NOW_S)
    assert (guard is not None) == (gains and not stays)


def test_both_keep_time_for_as_many_starts() -> None:
    assert RESTARTS == handover.RESTARTS
