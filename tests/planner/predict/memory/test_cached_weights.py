"""8-bit copies of weights that Transformer Engine keeps beside those in 16 bits."""

from dataclasses import replace

import pytest

from gpuplan.planner.parallelism.fsdp import units_of
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.cached_weights import cached_bytes
from gpuplan.planner.predict.memory.peak_memory import memory_parts
from gpuplan.profiles.profile import Profile

EIGHT_BITS = Setup(layout=Layout(), precision="fp8", micro_batch=1, stack="megatron")


@pytest.mark.parametrize("layout", [Layout(), Layout(tensor=2), Layout(pipeline=2)])
def test_a_copy_and_its_transpose_take_two_bytes_a_parameter_of_blocks(
    small_decoder: Profile, layout: Layout
) -> None:
    cache, setup = ModelCache(small_decoder), replace(EIGHT_BITS, layout=layout)
    copied, alone = (
        memory_parts(cache, replace(setup, features=features)).peak_bytes.item()
        for features in (frozenset(), frozenset({"fp8-parameters"}))
    )
    of_blocks = sum(group.count * group.parameters for group in small_decoder.blocks)
    parts = layout.tensor * layout.pipeline
    assert copied - alone == pytest.approx(2 * of_blocks / parts, rel=0.05)


def test_nobody_else_keeps_copies(small_decoder: Profile) -> None:
    units = units_of(small_decoder)
    assert cached_bytes(EIGHT_BITS, units) > 0
    for other in (
        replace(EIGHT_BITS, stack="torch-compile"),
        replace(EIGHT_BITS, precision="bf16-amp"),
        replace(EIGHT_BITS, features=frozenset({"mxfp8"})),
        replace(EIGHT_BITS, layout=Layout(data=2, shard=2, zero_stage=3)),
    ):
        assert cached_bytes(other, units) == 0
