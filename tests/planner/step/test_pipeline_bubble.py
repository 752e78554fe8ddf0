"""How long pipeline stages wait for each other."""

import numpy as np
import pytest

from gpuplan.planner.step.model_parallel_step import pipeline_s
from gpuplan.planner.step.pipeline_bubble import bubble_s, covering_passes


@pytest.mark.parametrize(("pipeline", "virtual"), [(4, 1), (4, 2), (8, 3)])
def test_the_bubble_of_equal_stages(pipeline: int, virtual: int) -> None:
    """Narayanan et al. 2021, section 2.2: (p - 1) / v stages."""
    others_s = np.array([pipeline - 1.0])
    assert bubble_s(others_s, np.array(virtual)).item() == pytest.approx((pipeline - 1) / virtual)


@pytest.mark.parametrize(
    ("pipeline", "virtual", "grad_accum", "passes"),
    [
        (8, 1, 64, 1),
        (1, 1, 64, 1),
        (8, 4, 64, 6.25),
        (6, 8, 6, 5.375),
        (8, 4, 1, 1),
        (8, 4, 4, 3.25),
    ],
)
def test_chunks_are_communicated_under_those_that_run_before_and_after_them(
    pipeline: int, virtual: int, grad_accum: int, passes: float
) -> None:
    """A schedule in groups: one pass of the last chunk, and a group of each of the others."""
    args = np.array(pipeline), np.array(virtual), np.array(grad_accum)
    assert covering_passes(*args).item() == pytest.approx(passes)


@pytest.mark.parametrize(("pipeline", "virtual"), [(2, 2), (4, 3), (6, 8)])
def test_an_interleaved_schedule_played_out(pipeline: int, virtual: int) -> None:
    """Megatron's order of backward passes on a stage: groups of micro-batches, chunk by chunk."""
    grad_accum = 3 * pipeline
    order = [
        (chunk, group + one)
        for group in range(0, grad_accum, pipeline)
        for chunk in reversed(range(virtual))
        for one in range(pipeline)
    ]
    last = grad_accum - 1
    whole_first = order.index((virtual - 1, last))
    behind = (len(order) - whole_first) / virtual  # In micro-batches, the chunk's own among them.
    args = np.array(pipeline), np.array(virtual), np.array(grad_accum)
    assert covering_passes(*args).item() == pytest.approx(behind)


@pytest.mark.parametrize("passes", [1, 8])
def test_a_pipeline_that_is_drained_for_every_local_batch_waits_for_each(passes: int) -> None:
    def waits(send: float) -> float:
        return pipeline_s(
            np.array([3.0]),
            np.array([send]),
            pipeline=np.array([4]),
            virtual_stages=np.array([10]),
            grad_accum=np.array([32]),
            passes=passes,
        ).item()

    assert waits(0) == pytest.approx(passes * 3 / 10)
    assert waits(1) - waits(0) == pytest.approx(32 + passes * 3 / 10)
