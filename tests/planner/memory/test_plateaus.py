"""Plateaus: their highest ticks, and the moments that they lie in."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from no_storages import no_storages

from gpuplan.planner.memory.plateaus import highest_tick, moments_of
from gpuplan.profiles.profile import Segment, StepTrace

STREAM = no_storages(9)


@given(
    arrays(float, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=st.integers(0, 3)),
    st.data(),
)
def test_the_highest_tick_is_the_first_of_the_largest(transient: np.ndarray, data) -> None:
    ticks = range(len(transient) + 1)
    cuts = sorted(data.draw(st.sets(st.sampled_from(ticks), min_size=2)))
    kept = data.draw(st.sets(st.sampled_from(range(len(cuts) - 1)), min_size=1))
    starts = np.array([cuts[i] for i in sorted(kept)])
    ends = np.array([cuts[i + 1] for i in sorted(kept)])
    expected = [
        start + transient[start:end].argmax(axis=0) for start, end in zip(starts, ends, strict=True)
    ]
    assert highest_tick(transient, starts, ends).tolist() == np.stack(expected).tolist()


def test_moments_know_the_blocks_beside_them() -> None:
    kinds = [
        ("forward", None), ("forward", "a"), ("forward", "b"), ("backward", None),
        ("recompute", "b"), ("backward", "b"), ("backward", "a"), ("backward", None),
        ("optimizer", None),
    ]  # fmt: skip
    trace = StepTrace(
        numerics="fp32",
        recompute="full",
        segments=tuple(
            Segment(name=str(i), phase=phase, block=block, kernels=())  # pyright: ignore[reportArgumentType]
            for i, (phase, block) in enumerate(kinds)
        ),
        schedule=list(range(len(kinds))),
        start_tick=list(range(len(kinds))),
        memory=STREAM,
    )
    found = [(m.phase, m.unit, m.previous, m.following, m.final) for m in moments_of(trace)]
    assert found == [
        ("forward", None, None, "a", False),
        ("forward", "a", None, "b", False),
        ("forward", "b", "a", None, False),
        ("backward", None, None, "b", False),
        ("backward", "b", None, "a", False),
        ("backward", "b", None, "a", False),
        ("backward", "a", "b", None, False),
        ("backward", None, "a", None, True),
        ("optimizer", None, None, None, False),
    ]
