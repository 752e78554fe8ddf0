"""What no machine changes is worked out once, for each global batch and way of keeping state."""

import pytest

from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import Work
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.search.whole_work import WholeWork
from gpuplan.planner.software.checkpoint_size import checkpoint_bytes
from gpuplan.profiles.profile import Profile


@pytest.mark.parametrize(("global_batch", "steps"), [(8, 125), (16, 63)])
def test_steps_follow_from_the_samples_and_the_batch(
    toy: Profile, global_batch: int, steps: int
) -> None:
    assert WholeWork(Work(samples=1000), toy).steps(global_batch) == steps


def test_without_an_amount_of_work_there_are_no_steps(toy: Profile) -> None:
    assert WholeWork(Work(), toy).steps(8) is None


def test_a_checkpoint_is_counted_once_for_each_way(
    toy: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Setup(layout=Layout(), precision="bf16-amp", micro_batch=1)
    whole = WholeWork(Work(), toy)
    first = whole.checkpoint_bytes(base)
    assert first == checkpoint_bytes(toy, "bf16-amp", None)
    monkeypatch.delattr("gpuplan.planner.search.whole_work.checkpoint_bytes")
    assert whole.checkpoint_bytes(base) == first
