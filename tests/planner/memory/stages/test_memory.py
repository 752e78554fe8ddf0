"""Memory and parameters of one rank of a split model: laws that hold whatever the model."""

import numpy as np
import pytest

from gpuplan.planner.memory.rank_memory import RankMemory, rank_memory
from gpuplan.planner.memory.stages.memory import stage_envelope, stage_memories
from gpuplan.planner.parallelism.fsdp import units_of
from gpuplan.planner.parallelism.rank_parameters import RankUnits, rank_units
from gpuplan.planner.parallelism.rank_trace import Split, split_trace
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.software.state_bytes import AS_TRACED
from gpuplan.profiles.profile import Profile

SIZES = np.array([1.0, 2.0, 8.0])


def stages_of(
    profile: Profile, layout: Layout, *, grad_accum: int = 8
) -> tuple[list[RankMemory], list[RankUnits]]:
    cache = ModelCache(profile)
    trace = cache.steps.trace_in("amp16", "none")
    split = Split(context=layout.context)
    units = rank_units(profile, units_of(profile), trace, layout, split)
    memories = stage_memories(
        split_trace(trace, split),
        profile,
        units,
        layout,
        micro_batches=SIZES,
        compute_bytes=2,
        grad_accum=grad_accum,
        state=AS_TRACED,
    )
    return memories, units


def test_one_stage_is_the_whole_model(toy: Profile) -> None:
    cache = ModelCache(toy)
    whole = rank_memory(
        cache.steps.envelope("bf16-amp", "none", SIZES),
        toy,
        Layout(),
        compute_bytes=2,
        grad_accum=8,
    )
    (one,), _ = stages_of(toy, Layout())
    assert one.peak_bytes == pytest.approx(whole.peak_bytes, rel=1e-6)


@pytest.mark.parametrize("pipeline", [2, 4, 8])
def test_stages_together_hold_every_parameter_once(toy: Profile, pipeline: int) -> None:
    _, units = stages_of(toy, Layout(pipeline=pipeline))
    assert sum(one.parameters for one in units) == pytest.approx(toy.parameters, rel=1e-3)


def test_activations_of_the_first_stage_do_not_shrink_with_more_stages(toy: Profile) -> None:
    """1F1B: p micro-batches of 1/p of the layers (Korthikanti et al. 2022, section 4.2.3)."""
    peaks = [
        stages_of(toy, Layout(pipeline=p), grad_accum=64)[0][0].activations_bytes for p in (2, 4, 8)
    ]
    assert peaks[1] == pytest.approx(peaks[0], rel=0.15)
    assert peaks[2] == pytest.approx(peaks[0], rel=0.15)


def test_fewer_micro_batches_in_flight_hold_less(toy: Profile) -> None:
    few = stages_of(toy, Layout(pipeline=8), grad_accum=1)[0][0]
    many = stages_of(toy, Layout(pipeline=8), grad_accum=8)[0][0]
    assert (few.activations_bytes < many.activations_bytes / 4).all()


def test_nothing_is_in_flight_when_the_optimizer_steps(toy: Profile) -> None:
    trace = ModelCache(toy).steps.trace_in("amp16", "none")
    share, layout = split_trace(trace, Split()), Layout(pipeline=4)
    one, many = (stage_envelope(share, layout, 0, SIZES, accum) for accum in (1, 8))
    steps = one.is_optimizing
    assert steps.any() and not steps.all()
    assert (one.activation_bytes[steps] == many.activation_bytes[steps]).all()
    assert (one.activation_bytes[~steps] < many.activation_bytes[~steps]).all()


def test_context_ranks_divide_activations(toy: Profile) -> None:
    whole = stages_of(toy, Layout(pipeline=2))[0][0]
    half = stages_of(toy, Layout(pipeline=2, context=2))[0][0]
    assert half.activations_bytes == pytest.approx(whole.activations_bytes / 2, rel=0.05)
    assert half.parameters_bytes == pytest.approx(whole.parameters_bytes)


def test_sharded_optimizer_state_is_divided_over_data_ranks(toy: Profile) -> None:
    plain = stages_of(toy, Layout(data=4, pipeline=2))[0][0]
    sharded = stages_of(toy, Layout(data=4, shard=4, zero_stage=1, pipeline=2))[0][0]
    assert sharded.optimizer_bytes == pytest.approx(plain.optimizer_bytes / 4)
    assert sharded.parameters_bytes == pytest.approx(plain.parameters_bytes)
