"""Dense gradients of embedding tables are named where they are most of a step's traffic."""

from dataclasses import replace

import pytest

from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.search.answer.embedding_note import embedding_notes
from gpuplan.profiles.profile import Affine, Profile

SETUP = Setup(layout=Layout(), micro_batch=1, precision="fp32")
TABLES = 250_000_000


def with_tables(toy: Profile, op: str) -> Profile:
    """Return a profile whose step writes a dense gradient of 1 GB, and trains such tables."""
    step = toy.steps[0]
    at = next(i for i, one in enumerate(step.segments) if one.phase == "backward")
    old = step.segments[at]
    written = Affine(4 * TABLES / step.schedule.count(at))
    kernel = old.kernels[0].model_copy(update={"op": op, "bytes_written": written})
    changed = old.model_copy(update={"kernels": (kernel, *old.kernels[1:])})
    segments = (*step.segments[:at], changed, *step.segments[at + 1 :])
    return toy.model_copy(
        update={
            "steps": (step.model_copy(update={"segments": segments}),),
            "parameters": TABLES,
            "trainable_parameters": TABLES,
        }
    )


@pytest.mark.parametrize("op", ["embedding_dense_backward", "_embedding_bag_backward"])
def test_they_are_named_with_what_to_do(toy: Profile, op: str) -> None:
    (note,) = embedding_notes(with_tables(toy, op), SETUP)
    assert "of the bytes that a step moves are dense gradients of embedding tables" in note
    assert "(953.7 MiB of gradients)" in note
    assert "sparse=True" in note and "SparseAdam" in note and "one accelerator" not in note
    share = int(note.split(" %")[0])
    assert 80 <= share <= 100
    # The update is paid once, however many micro-batches are accumulated.
    (more,) = embedding_notes(with_tables(toy, op), replace(SETUP, grad_accum=8))
    assert int(more.split(" %")[0]) <= share
    several = replace(SETUP, layout=Layout(data=8))
    assert "one accelerator alone" in next(embedding_notes(with_tables(toy, op), several))


def test_a_step_that_moves_other_things_is_not_told(toy: Profile) -> None:
    assert not list(embedding_notes(toy, SETUP))
    assert not list(embedding_notes(with_tables(toy, "embedding"), SETUP))
