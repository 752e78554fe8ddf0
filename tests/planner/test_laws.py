"""Laws that any prediction keeps, whatever the model, the machine and the layout."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.predict import Prediction, predict
from gpuplan.profiles.profile import Profile

relaxed = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
ACCELERATORS = ("V100-32GB-SXM2", "A100-80GB-SXM", "H100-80GB-SXM", "MI300X", "L4", "TPU-v5p")
LAYOUTS = {
    0: lambda n: Layout(data=n),
    1: lambda n: Layout(data=n, shard=n, zero_stage=1),
    2: lambda n: Layout(data=n, shard=n, zero_stage=2),
    3: lambda n: Layout(data=n, shard=n, zero_stage=3),
}


def site(name: str = "A100-80GB-SXM", nodes: int = 1, per_node: int = 8, gbit: float = 400) -> Site:
    accelerator = load_catalogue().accelerators[name]
    return Site(
        accelerator=accelerator,
        per_node=per_node,
        nodes=nodes,
        intra_link=Link(name="link", bytes_per_s=accelerator.link_bytes_per_s),
        inter_link=Link(name="fabric", bytes_per_s=gbit / 8 * 1e9, rdma=True),
    )


def ask(profile: Profile, where: Site, stage: int = 3, **changes: object) -> Prediction:
    setup = Setup(layout=LAYOUTS[stage](where.accelerators), precision="fp16-amp", micro_batch=4)
    return predict(profile, where, replace(setup, **changes))


stages = st.sampled_from([0, 1, 2, 3])
names = st.sampled_from(ACCELERATORS)


@relaxed
@given(stage=stages, nodes=st.sampled_from([2, 4, 16]), gbit=st.floats(25, 1600))
def test_a_faster_network_is_never_slower(
    toy: Profile, stage: int, nodes: int, gbit: float
) -> None:
    slow = ask(toy, site(nodes=nodes, gbit=gbit), stage)
    fast = ask(toy, site(nodes=nodes, gbit=2 * gbit), stage)
    assert fast.step_time_s.value <= slow.step_time_s.value * (1 + 1e-9)


@relaxed
@given(name=names, factor=st.floats(1, 8), precision=st.sampled_from(["fp32", "fp16-amp"]))
def test_more_memory_bandwidth_is_never_slower(
    toy: Profile, name: str, factor: float, precision: str
) -> None:
    before = site(name, per_node=1)
    if name == "TPU-v5p":
        precision = "bf16-amp"
    device = before.accelerator
    faster = device.model_copy(
        update={"memory_bandwidth_bytes_per_s": factor * device.memory_bandwidth_bytes_per_s}
    )
    slow = ask(toy, before, 0, precision=precision)
    fast = ask(toy, replace(before, accelerator=faster), 0, precision=precision)
    assert fast.step_time_s.value <= slow.step_time_s.value * (1 + 1e-9)


@relaxed
@given(layers=st.integers(4, 12), ranks=st.sampled_from([4, 8, 16]), size=st.integers(1, 32))
def test_each_zero_stage_holds_no_more_than_the_one_before(
    make_decoder: Callable[..., Profile], layers: int, ranks: int, size: int
) -> None:
    profile = make_decoder(layers=layers)
    where = site(per_node=ranks)
    peaks = [
        ask(profile, where, stage, micro_batch=size).peak_allocated_bytes for stage in range(4)
    ]
    assert peaks == sorted(peaks, reverse=True)


@relaxed
@given(stage=stages, ranks=st.sampled_from([1, 2, 8]))
def test_persistent_state_shrinks_with_the_stage(toy: Profile, stage: int, ranks: int) -> None:
    held = []
    for each in range(stage + 1):
        memory = ask(toy, site(per_node=ranks), each).memory_breakdown_bytes
        held.append(memory.optimizer)
    assert held == sorted(held, reverse=True)


@relaxed
@given(stage=stages, size=st.integers(1, 64), more=st.integers(1, 64))
def test_a_larger_micro_batch_never_holds_less(
    toy: Profile, stage: int, size: int, more: int
) -> None:
    small = ask(toy, site(), stage, micro_batch=size).peak_allocated_bytes
    large = ask(toy, site(), stage, micro_batch=size + more).peak_allocated_bytes
    assert large >= small


@relaxed
@given(stage=stages, size=st.sampled_from([1, 4, 16]))
def test_training_part_of_the_model_holds_no_more(
    make_decoder: Callable[..., Profile], stage: int, size: int
) -> None:
    whole = ask(make_decoder(), site(), stage, micro_batch=size)
    part = ask(make_decoder(trainable=0.05), site(), stage, micro_batch=size)
    assert part.peak_allocated_bytes <= whole.peak_allocated_bytes


@relaxed
@given(name=names, stage=stages, accum=st.sampled_from([1, 2, 8]), nodes=st.sampled_from([1, 4]))
def test_parts_add_up_and_lie_in_the_interval(
    toy: Profile, name: str, stage: int, accum: int, nodes: int
) -> None:
    precision = "bf16-amp" if name.startswith("TPU") else "fp16-amp"
    answer = ask(toy, site(name, nodes=nodes), stage, grad_accum=accum, precision=precision)
    parts = answer.breakdown_s.model_dump()
    assert sum(v for v in parts.values() if v is not None) == pytest.approx(
        answer.step_time_s.value
    )
    assert all(v is None or v >= -1e-12 for v in parts.values())
    memory = answer.memory_breakdown_bytes.model_dump()
    assert sum(memory.values()) == pytest.approx(answer.peak_memory_bytes.value)
    assert answer.step_time_s.low < answer.step_time_s.value < answer.step_time_s.high
    assert answer.mfu is not None and 0 < answer.mfu <= 1


@relaxed
@given(stage=stages, accum=st.sampled_from([2, 4, 8]))
def test_accumulation_takes_its_time(toy: Profile, stage: int, accum: int) -> None:
    once = ask(toy, site(nodes=2), stage).step_time_s.value
    often = ask(toy, site(nodes=2), stage, grad_accum=accum).step_time_s.value
    assert once < often <= accum * once * (1 + 1e-9)
