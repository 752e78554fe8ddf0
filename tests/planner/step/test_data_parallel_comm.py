"""How much of the data dimension's collectives compute hides."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from gpuplan.planner.step.data_parallel_comm import Traffic


def traffic(*, last_s: float, every_s: float = 0.0) -> Traffic:
    """Return the collectives of one layout whose last bucket hides as all others do."""
    nothing = np.zeros((1, 1))
    seconds = {field.name: nothing for field in fields(Traffic) if field.name.endswith("_s")}
    seconds |= {"last_backward_s": nothing + last_s, "backward_s": nothing + every_s}
    return Traffic(**seconds, hiding_cost=nothing, hiding_share=1.0, straggling=nothing)


def test_reductions_of_once_a_step_hide_under_the_passes_behind_them() -> None:
    forward_s, backward_s, accum = np.array([[1.0]]), np.array([[2.0]]), np.array([[16]])
    reduced = traffic(last_s=20.0)
    alone = reduced.exposed_s(forward_s, backward_s, accum)
    chunks = reduced.exposed_s(forward_s, backward_s, accum, covering=np.array([[6.0]]))
    assert alone.item() == pytest.approx(20 - 2, abs=0.01)
    assert chunks.item() == pytest.approx(20 - 12, abs=0.2)


def test_what_runs_in_every_micro_batch_hides_under_its_own() -> None:
    forward_s, backward_s, accum = np.array([[1.0]]), np.array([[2.0]]), np.array([[16]])
    gathered = traffic(last_s=1.0, every_s=20.0)
    alone = gathered.exposed_s(forward_s, backward_s, accum)
    chunks = gathered.exposed_s(forward_s, backward_s, accum, covering=np.array([[6.0]]))
    assert chunks.item() == alone.item()
