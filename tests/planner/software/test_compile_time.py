"""How long torch's compiler works: of each kernel, once for blocks that are compiled alone."""

from dataclasses import replace

import pytest

from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.software.compile_time import (
    LONG_S,
    SECONDS_PER_KERNEL,
    compile_notes,
    compile_s,
    not_compiled_notes,
)
from gpuplan.profiles.profile import Profile

EAGER = Setup(layout=Layout(data=8), precision="bf16-amp", micro_batch=2, grad_accum=1)
WHOLE = replace(EAGER, stack="torch-compile", compile=True)
BY_BLOCK = replace(WHOLE, layout=Layout(data=8, shard=8, zero_stage=3))


def unrolled(profile: Profile, times: int) -> Profile:
    """Return a model whose loop in Python runs its kernels so often."""
    steps = [
        step.model_copy(update={"schedule": step.schedule * times, "offsets": ()})
        for step in profile.steps
    ]
    return profile.model_copy(update={"steps": tuple(steps)})


def test_every_kernel_is_compiled_and_equal_blocks_once(small_decoder: Profile) -> None:
    step = small_decoder.steps[0]
    whole = sum(len(step.segments[number].kernels) for number in step.schedule)
    distinct = sum(len(segment.kernels) for segment in step.segments)
    assert compile_s(small_decoder, EAGER) == 0
    assert compile_s(small_decoder, WHOLE) == pytest.approx(SECONDS_PER_KERNEL * whole)
    assert compile_s(small_decoder, BY_BLOCK) == pytest.approx(SECONDS_PER_KERNEL * distinct)
    assert distinct < whole


def test_only_long_compiling_is_said(small_decoder: Profile) -> None:
    assert list(compile_notes(small_decoder, WHOLE)) == []
    times = int(2 * LONG_S / compile_s(small_decoder, WHOLE))
    long = unrolled(small_decoder, times)
    (note,) = compile_notes(long, WHOLE)
    assert "about 20 min at every start" in note and "these sums do not have it" in note
    (why,) = not_compiled_notes(long, WHOLE)
    assert why.startswith("torch.compile is not proposed: compiling the ")
    assert list(compile_notes(long, EAGER)) == list(compile_notes(long, BY_BLOCK)) == []
