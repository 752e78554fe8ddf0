"""The few windows that stand for a stage of any length hold its highest plateaus."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from split_spaces import DENSE, TWO_KINDS, UNEVEN, profiles_of

from gpuplan.catalog.vocabulary import Recompute
from gpuplan.planner.memory.stages.plateaus import StageShape, stage_shape
from gpuplan.planner.memory.stages.shapes import StageShapes, stage_shapes
from gpuplan.planner.memory.stages.stream import streams_of
from gpuplan.planner.parallelism.rank_trace import Split, split_trace
from gpuplan.planner.predict.kept.model_cache import ModelCache

SIZES = np.array([1.0, 2.0, 8.0])
MODELS = (TWO_KINDS, DENSE, UNEVEN)
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shapes() -> dict[tuple[int, Recompute], StageShapes]:
    """Return the stages of each of `MODELS` under each way of recomputing."""
    found: dict[tuple[int, Recompute], StageShapes] = {}
    for model, profile in enumerate(profiles_of(*MODELS)):
        steps = ModelCache(profile).steps
        for recompute in RECOMPUTES:
            trace = steps.trace_in("amp16", recompute)
            share = split_trace(trace, Split(tensor=1, sequence_parallel=False))
            made = stage_shapes(streams_of(share, 1), share.trace, SIZES)
            found[model, recompute] = made
    return found


def all_windows(shapes: StageShapes, pipeline: int, chunks: int, stage: int) -> StageShape:
    """Return the stage with every plateau of every layer it runs."""
    per = shapes.layers // (pipeline * chunks)
    own = np.zeros(len(shapes.blocks), dtype=bool)
    for chunk in range(stage, pipeline * chunks, pipeline):
        own |= (shapes.blocks >= chunk * per) & (shapes.blocks < (chunk + 1) * per)
    own |= (shapes.blocks == -1) & (stage == 0)
    own |= (shapes.blocks == shapes.layers) & (stage == pipeline - 1)
    return stage_shape(shapes.streams, own, shapes.sizes)


def totals(shape: StageShape, weight: float) -> np.ndarray:
    """Return [B] the highest of what is live, gradients weighted as shardings weight them."""
    one = shape.envelope
    live = one.activation_bytes + one.temporary_bytes + one.input_bytes
    return (live + weight * one.gradient_bytes[:, None]).max(axis=0)


@given(data=st.data())
def test_the_windows_that_are_looked_at_hold_the_peak(
    shapes: dict[tuple[int, Recompute], StageShapes], data: st.DataObject
) -> None:
    one = data.draw(st.sampled_from([*shapes.values()]))
    degrees = [(p, v) for p in (2, 3, 4, 6) for v in (1, 2, 3, 4, 6, 11, 12)]
    cuts = [(p, v) for p, v in degrees if one.layers % (p * v) == 0]
    pipeline, chunks = data.draw(st.sampled_from(cuts))
    stage = data.draw(st.integers(0, pipeline - 1))
    weight = data.draw(st.floats(0, 4))
    few = one.of(pipeline, chunks, stage)
    every = all_windows(one, pipeline, chunks, stage)
    assert np.array_equal(few.saved_bytes, every.saved_bytes)
    assert totals(few, weight) == pytest.approx(totals(every, weight), rel=1e-12)


def test_of_equal_chunks_in_a_row_the_outer_ones_are_looked_at(
    shapes: dict[tuple[int, Recompute], StageShapes],
) -> None:
    one = shapes[0, "none"]
    assert not one.is_uniform
    few = one.of(2, 12, 0).envelope.moments
    every = all_windows(one, 2, 12, 0).envelope.moments
    assert len(few) < 0.8 * len(every)
