"""What FSDP holds while it reduces the gradients of the root: without blocks, those of all."""

from dataclasses import replace

import numpy as np
import pytest

from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import memory_parts
from gpuplan.profiles.profile import Profile, Segment, StepTrace

SHARD = 8
FSDP = Setup(
    layout=Layout(data=SHARD, shard=SHARD, zero_stage=3),
    precision="bf16-amp",
    micro_batch=1,
    grad_accum=1,
    autocast=False,
)


def without_blocks(profile: Profile) -> Profile:
    """Return the same model as its root alone, as one that nothing repeats in."""
    tensors = [*profile.root_tensors]
    for group in profile.blocks:
        tensors += [one for _ in range(group.count) for one in group.tensors]

    def unnamed(segment: Segment) -> Segment:
        return segment.model_copy(update={"block": None})

    steps = [
        step.model_copy(update={"segments": tuple(map(unnamed, step.segments))})
        for step in profile.steps
    ]
    return profile.model_copy(
        update={"blocks": (), "root_tensors": tuple(tensors), "steps": tuple(steps)}
    )


@pytest.mark.parametrize("grad_accum", [1, 2])
def test_the_whole_root_is_reduced_in_fp32_beside_its_16_bit_gradients(
    small_decoder: Profile, grad_accum: int
) -> None:
    alone = without_blocks(small_decoder)
    setup = replace(FSDP, grad_accum=grad_accum)
    parts = memory_parts(ModelCache(alone), setup)
    trained = small_decoder.trainable_parameters
    # torch's own fully_shard on a fake process group (benchmarks/trace_fully_shard.py): the root's
    # gradients in 16 bits and the input of their reduction in fp32, beside what lives all along.
    at_the_end = (2 + 4) * trained + 4 * trained / SHARD
    kept = 8 * trained / SHARD + (4 * trained / SHARD if grad_accum > 1 else 0.0)
    assert parts.peak_bytes.item() >= at_the_end + kept
    with_blocks = memory_parts(ModelCache(small_decoder), setup)
    assert parts.peak_bytes.item() > with_blocks.peak_bytes.item()


def test_the_root_is_reduced_at_the_end_though_it_computes_nothing_there(
    small_decoder: Profile,
) -> None:
    """A model without an embedding ends its backward pass in a block."""
    (block,) = small_decoder.blocks
    steps = [_ending_in(step, block.name) for step in small_decoder.steps]
    without = small_decoder.model_copy(update={"steps": tuple(steps)})
    for profile in (small_decoder, without):
        found = ModelCache(profile).steps.envelope("bf16", "none", np.array([1]), autocast=False)
        finals = [moment for moment in found.moments if moment.final]
        assert {moment.previous for moment in finals} == {block.name}
    assert len(finals) == 1 and found.blocks_held[block.name][found.moments.index(finals[0])] == 0


def _ending_in(step: StepTrace, block: str) -> StepTrace:
    """Return the step with what it computes of the root after its blocks as part of the last."""
    backward = [i for i in step.schedule if step.segments[i].phase == "backward"]
    behind = backward[len(backward) - backward[::-1].index(_last(step, backward)) :]
    segments = [
        one.model_copy(update={"block": block}) if number in behind else one
        for number, one in enumerate(step.segments)
    ]
    return step.model_copy(update={"segments": tuple(segments)})


def _last(step: StepTrace, numbers: list[int]) -> int:
    return next(i for i in reversed(numbers) if step.segments[i].block is not None)
