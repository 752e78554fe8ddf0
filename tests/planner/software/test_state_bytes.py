"""What layouts keep and send of parameters that get no gradient."""

from dataclasses import replace

import numpy as np
import pytest

from gpuplan.catalog.vocabulary import Stack
from gpuplan.planner.memory.rank_memory import RankMemory
from gpuplan.planner.parallelism.fsdp import units_of
from gpuplan.planner.plan.layout import parse_layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import data_parallel_memory
from gpuplan.planner.predict.setup import wire_bytes
from gpuplan.planner.step.slotted_calls import slotted_calls
from gpuplan.profiles.profile import Profile

UNUSED = 50_000_000


def with_unused(profile: Profile) -> Profile:
    """Return a model with more parameters, none of which its traced step uses."""
    return profile.model_copy(
        update={
            "parameters": profile.parameters + UNUSED,
            "trainable_parameters": profile.trainable_parameters + UNUSED,
            "unused_parameters": UNUSED,
        }
    )


def memory(profile: Profile, layout: str, stack: Stack = "torch-eager") -> RankMemory:
    setup = Setup(layout=parse_layout(layout), precision="fp32", micro_batch=1, stack=stack)
    setup = replace(setup, autocast=True)
    return data_parallel_memory(ModelCache(profile), setup, np.array([1]))


@pytest.mark.parametrize(("layout", "room"), [("dp1", 0), ("dp4", 4 * UNUSED), ("dp4.zero1", 0)])
def test_torch_keeps_state_of_what_gets_a_gradient(toy: Profile, layout: str, room: int) -> None:
    """DDP alone has room for the gradients that do not come."""
    plain, more = memory(toy, layout), memory(with_unused(toy), layout)
    assert more.optimizer_bytes == pytest.approx(plain.optimizer_bytes)
    assert more.gradients_bytes - plain.gradients_bytes == pytest.approx(room, rel=1e-6)


def test_megatron_steps_all_that_require_a_gradient(toy: Profile) -> None:
    plain, more = memory(toy, "dp4", "megatron"), memory(with_unused(toy), "dp4", "megatron")
    assert more.optimizer_bytes - plain.optimizer_bytes == pytest.approx(8 * UNUSED)
    assert more.gradients_bytes - plain.gradients_bytes == pytest.approx(4 * UNUSED)


@pytest.mark.parametrize(
    ("layout", "kind", "sent"), [("dp4", "all_reduce", 4 * UNUSED), ("fsdp4", "reduce_scatter", 0)]
)
def test_only_ddp_sends_zeros_for_them(toy: Profile, layout: str, kind: str, sent: int) -> None:
    sums = [
        sum(
            call.total_bytes * call.count
            for call in slotted_calls(units_of(each), parse_layout(layout), wire_bytes("fp32"))
            if call.kind == kind and "bare" not in call.slot
        )
        for each in (toy, with_unused(toy))
    ]
    assert sums[1] - sums[0] == pytest.approx(sent, abs=16)
