"""What is kept in host memory: against published figures, and laws that any model keeps."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.catalog.units import GIB
from gpuplan.catalog.vocabulary import Offloaded
from gpuplan.planner.constants import Constants, known_constants
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.hardware.host_links import host_bytes_per_s, host_link_bytes_per_s
from gpuplan.planner.offload.host_copies import host_work
from gpuplan.planner.offload.host_memory import HostState
from gpuplan.planner.plan.errors import UnsupportedError
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import Choices, Machine, Question
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.fullest_rank import stepped_parameters
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.predict import Prediction, predict
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

relaxed = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FSDP8 = Layout(data=8, shard=8, zero_stage=3)
ZERO2 = Layout(data=8, shard=8, zero_stage=2)
USUAL = Constants.shipped()
OPTIMIZER: frozenset[Offloaded] = frozenset({"optimizer"})
PARAMETERS: frozenset[Offloaded] = frozenset({"parameters"})
ACTIVATIONS: frozenset[Offloaded] = frozenset({"activations"})
CPU_ADAM_S = {1e9: 0.22, 2e9: 0.51, 4e9: 1.03, 8e9: 2.41, 10e9: 2.57}
"""Latency of DeepSpeed's CPU-Adam by parameters (arXiv:2101.06840, table 4)."""


def site(
    name: str = "A100-80GB-SXM",
    per_node: int = 8,
    *,
    vcpus: float | None = None,
    host_memory_bytes: float | None = None,
) -> Site:
    accelerator = load_catalogue().accelerators[name]
    link = Link(name=None, bytes_per_s=accelerator.link_bytes_per_s)
    return Site(
        accelerator=accelerator,
        per_node=per_node,
        nodes=1,
        intra_link=link,
        inter_link=Link(name=None, bytes_per_s=None),
        vcpus=vcpus,
        host_memory_bytes=host_memory_bytes,
    )


def ask(
    profile: Profile,
    layout: Layout = FSDP8,
    where: Site | None = None,
    **changes: object,
) -> Prediction:
    setup = Setup(layout=layout, precision="bf16-amp", micro_batch=4, autocast=False)
    where = where or site(per_node=layout.accelerators)
    return predict(profile, where, replace(setup, **changes))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("parameters", "measured_s"), CPU_ADAM_S.items())
def test_the_host_steps_adam_as_fast_as_published(
    toy: Profile, parameters: float, measured_s: float
) -> None:
    dgx_2 = site("V100-32GB-SXM3", per_node=1, vcpus=96)
    state = HostState.of(toy, "fp16-amp", OPTIMIZER)
    prior = {"host_bytes_per_s": known_constants()["host_bytes_per_s"].prior}
    rate = host_bytes_per_s(dgx_2, USUAL.replaced(prior))
    predicted_s = parameters * state.stepped_bytes / rate
    assert predicted_s == pytest.approx(measured_s, rel=0.2)


def test_host_memory_is_that_of_deepspeed(toy: Profile) -> None:
    # 16 bytes of state a parameter, up to 1.5 times as much with buffers
    # (estimate_zero3_model_states_mem_needs); the 16-bit copy that is sent back is one of these.
    memory = ask(toy, offload=OPTIMIZER).host_memory_bytes
    assert memory is not None
    assert 16 * toy.parameters <= memory.value <= memory.high
    assert memory.high == pytest.approx(1.5 * 18 * toy.parameters)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("V100-16GB-SXM2", 11e9, 13e9),
        ("A100-80GB-SXM", 23e9, 26e9),
        ("A2", 11e9, 13e9),
        ("H100-80GB-SXM", 48e9, 56e9),
        ("MI300X", 48e9, 56e9),
        ("GH200-96GB", 290e9, 450e9),
    ],
)
def test_links_to_the_host_reach_what_is_measured(name: str, low: float, high: float) -> None:
    assert low <= host_link_bytes_per_s(load_catalogue().accelerators[name]) <= high


def test_ranks_of_a_node_share_its_memory_and_few_cores_are_slow() -> None:
    alone, shared = site(per_node=1), site(per_node=8)
    whole = host_bytes_per_s(alone, USUAL)
    assert whole == pytest.approx(8 * host_bytes_per_s(shared, USUAL))
    assert host_bytes_per_s(site(per_node=1, vcpus=4), USUAL) < whole / 3
    assert host_bytes_per_s(site(per_node=1, vcpus=192), USUAL) == whole


SPLITS = [
    Layout(pipeline=2),
    Layout(data=2, pipeline=2),
    Layout(data=4, shard=4, zero_stage=1, pipeline=2),
    Layout(data=4, shard=4, zero_stage=2, pipeline=2),
]


@pytest.mark.parametrize("layout", SPLITS, ids=str)
def test_a_split_model_keeps_its_gradients_and_loses_its_optimizer(
    toy: Profile, layout: Layout
) -> None:
    stays, leaves = (ask(toy, layout, offload=o, grad_accum=4) for o in (frozenset(), OPTIMIZER))
    assert stays.memory_breakdown_bytes.optimizer > 0
    assert leaves.memory_breakdown_bytes.optimizer == 0
    assert leaves.memory_breakdown_bytes.gradients > 0
    assert leaves.peak_allocated_bytes < stays.peak_allocated_bytes
    assert leaves.breakdown_s.optimizer > stays.breakdown_s.optimizer
    fp32 = ask(toy, layout, offload=OPTIMIZER, precision="fp32", grad_accum=4, autocast=True)
    plain = ask(toy, layout, precision="fp32", grad_accum=4, autocast=True)
    held = fp32.memory_breakdown_bytes
    assert held.gradients == plain.memory_breakdown_bytes.gradients
    assert held.parameters == plain.memory_breakdown_bytes.parameters


@pytest.mark.parametrize("layout", SPLITS, ids=str)
def test_the_host_steps_the_share_of_each_rank_and_its_node_holds_them_all(
    toy: Profile, layout: Layout
) -> None:
    where = site(per_node=layout.accelerators)
    setup = Setup(layout=layout, precision="bf16-amp", micro_batch=4, autocast=False)
    stepped = stepped_parameters(ModelCache(toy), setup)
    assert stepped < toy.trainable_parameters
    found = ask(toy, layout, where, offload=OPTIMIZER)
    state = HostState.of(toy, "bf16-amp", OPTIMIZER)
    assert found.host_memory_bytes is not None
    assert found.host_memory_bytes.value == pytest.approx(
        layout.accelerators * stepped * state.kept_bytes
    )
    link = host_link_bytes_per_s(where.accelerator)
    rate = host_bytes_per_s(where, USUAL)
    expected = stepped * (state.stepped_bytes / rate + state.device_copy / link)
    assert found.breakdown_s.optimizer == pytest.approx(expected)


def test_a_split_model_copies_its_gradients_once_a_step(toy: Profile) -> None:
    def exposed_s(layout: Layout, accum: int) -> float:
        return ask(toy, layout, offload=OPTIMIZER, grad_accum=accum).breakdown_s.host_comm_exposed

    def step_s(layout: Layout, accum: int) -> float:
        return ask(toy, layout, offload=OPTIMIZER, grad_accum=accum).breakdown_s.optimizer

    split = Layout(pipeline=2)
    setup = Setup(layout=split, precision="bf16-amp", micro_batch=4, autocast=False)
    width, link = 4, host_link_bytes_per_s(site().accelerator)
    copied_bytes = width * stepped_parameters(ModelCache(toy), setup)
    assert exposed_s(split, 2) == pytest.approx(copied_bytes / link)
    assert exposed_s(split, 8) == pytest.approx(exposed_s(split, 2))
    assert step_s(split, 8) == pytest.approx(step_s(split, 2))
    assert step_s(FSDP8, 8) > step_s(FSDP8, 1), "there the host adds them up"


@pytest.mark.parametrize("layout", [Layout(), ZERO2, FSDP8])
def test_the_optimizer_s_state_leaves_the_device(toy: Profile, layout: Layout) -> None:
    stays, leaves = ask(toy, layout), ask(toy, layout, offload=OPTIMIZER)
    assert stays.memory_breakdown_bytes.optimizer > 0
    assert leaves.memory_breakdown_bytes.optimizer == 0
    assert leaves.peak_allocated_bytes < stays.peak_allocated_bytes
    assert leaves.step_time_s.value > stays.step_time_s.value
    assert leaves.breakdown_s.optimizer > stays.breakdown_s.optimizer
    assert stays.host_memory_bytes is None


def test_offloaded_parameters_leave_only_what_is_gathered(toy: Profile) -> None:
    optimizer, parameters = ask(toy, offload=OPTIMIZER), ask(toy, offload=PARAMETERS)
    assert parameters.memory_breakdown_bytes.gradients == 0
    assert parameters.peak_allocated_bytes < optimizer.peak_allocated_bytes
    (block,) = toy.blocks
    assert parameters.memory_breakdown_bytes.parameters > 2 * block.parameters


def test_one_rank_can_offload_parameters_too(toy: Profile) -> None:
    alone = Layout(zero_stage=3)
    held = ask(toy, alone, offload=PARAMETERS).memory_breakdown_bytes
    (block,) = toy.blocks
    root = toy.parameters - block.count * block.parameters
    assert held.parameters >= 2 * (root + block.parameters)
    assert held.gradients == held.optimizer == 0


@relaxed
@given(
    layout=st.sampled_from([Layout(), ZERO2, FSDP8]),
    size=st.integers(4, 32),
    precision=st.sampled_from(["bf16-amp", "tf32"]),
)
def test_offloaded_activations_hold_no_more_and_are_never_faster(
    toy: Profile, layout: Layout, size: int, precision: str
) -> None:
    stays = ask(toy, layout, micro_batch=size, precision=precision)
    leaves = ask(toy, layout, micro_batch=size, precision=precision, offload=ACTIVATIONS)
    assert leaves.peak_allocated_bytes < stays.peak_allocated_bytes
    assert leaves.step_time_s.value >= stays.step_time_s.value
    assert leaves.breakdown_s.optimizer == stays.breakdown_s.optimizer
    memory = leaves.host_memory_bytes
    assert memory is not None
    # All that a block saves, but not what the head saves for its own backward pass.
    assert memory.value == layout.accelerators * size * 34 * 1024 * 512 * 8


def test_copies_hide_under_compute_and_show_beyond_it(toy: Profile) -> None:
    fast = ask(toy, where=site("H100-80GB-SXM"), offload=ACTIVATIONS)
    copied_s = fast.host_memory_bytes.value / 8 / 52e9  # pyright: ignore[reportOptionalMemberAccess]
    computed_s = ask(toy, where=site("H100-80GB-SXM")).step_time_s.value
    assert 2 * copied_s > computed_s
    assert fast.breakdown_s.host_comm_exposed > 0
    assert fast.breakdown_s.host_comm_exposed < 2 * copied_s
    slow = ask(toy, where=site("A100-80GB-SXM"), offload=OPTIMIZER, micro_batch=64)
    assert slow.breakdown_s.host_comm_exposed == 0


def test_parts_of_the_step_add_up(toy: Profile) -> None:
    for offload in (OPTIMIZER, PARAMETERS, ACTIVATIONS, PARAMETERS | ACTIVATIONS):
        answer = ask(toy, offload=offload, grad_accum=2)
        parts = answer.breakdown_s.model_dump(exclude_none=True)
        assert sum(parts.values()) == pytest.approx(answer.step_time_s.value)


def test_a_rank_steps_only_its_shard(toy: Profile) -> None:
    sizes = [np.array(n) for n in (1e9, 2e9)]
    work = [
        host_work(toy, "bf16-amp", OPTIMIZER, site(), USUAL, stepped=size, gathered=size)
        for size in sizes
    ]
    assert work[1].step_s == pytest.approx(2 * work[0].step_s)
    assert work[0].gathered_bytes == 0


def test_a_host_with_too_little_memory_does_not_fit(toy: Profile) -> None:
    small = site(host_memory_bytes=toy.parameters * 10)
    answer = ask(toy, where=small, offload=OPTIMIZER)
    assert answer.peak_memory_bytes.value < answer.peak_memory_bytes.capacity
    assert not answer.fits
    assert any("host memory" in note and "only" in note for note in answer.notes)
    assert ask(toy, where=site(host_memory_bytes=100 * GIB), offload=OPTIMIZER).fits


@pytest.mark.parametrize(
    ("layout", "offload", "fix"),
    [
        (ZERO2, PARAMETERS, "--layout fsdp8"),
        (Layout(data=4, tensor=2), ACTIVATIONS, "data-parallel layout"),
    ],
)
def test_what_cannot_be_offloaded_is_refused(
    toy: Profile, layout: Layout, offload: frozenset[Offloaded], fix: str
) -> None:
    with pytest.raises(UnsupportedError) as caught:
        ask(toy, layout, offload=offload)
    assert fix in str(caught.value)


T4 = Machine(instances=("g4dn.8xlarge",), max_nodes=1)  # 16 GB on the device, 128 GiB on the host
LITTLE_HOST = Machine(instances=("g4dn.xlarge",), max_nodes=1)  # 16 GiB on the host


def test_the_search_offloads_only_when_nothing_else_fits(
    make_decoder: Callable[..., Profile],
) -> None:
    small, large = make_decoder(), make_decoder(layers=16, hidden=2560)
    batch = Choices(micro_batches=(1,), recomputes=("none",))
    fitting = search(Question(machine=T4, choices=batch), small, load_catalogue())
    assert fitting.plans and not any(plan.offload for plan in fitting.plans)
    never = replace(batch, offload=())
    assert not search(Question(machine=T4, choices=never), large, load_catalogue()).plans
    last = search(Question(machine=T4, choices=batch), large, load_catalogue())
    assert last.plans
    for plan in last.plans:
        assert plan.offload and "offload=" in plan.string
        assert plan.host_memory_bytes is not None and plan.host_memory_bytes.fits
    assert any("--offload none" in note for note in last.notes)
    assert not search(Question(machine=LITTLE_HOST, choices=batch), large, load_catalogue()).plans


def test_a_plan_with_offload_is_another_plan(toy: Profile) -> None:
    machine = Machine(instances=("p5.48xlarge",), nodes=(1,))
    choices = Choices(layouts=(FSDP8,), micro_batches=(1,), precisions=("bf16-amp",))
    plans = [
        search(Question(machine=machine, choices=one), toy, load_catalogue()).plans[0]
        for one in (choices, replace(choices, offload=("optimizer",)))
    ]
    assert plans[0].id != plans[1].id
    assert plans[1].offloaded == ("optimizer",)
    assert plans[1].host_memory_bytes is not None
    assert plans[1].host_memory_bytes.capacity == 2048 * GIB


def test_a_layout_that_cannot_offload_parameters_is_told_so(toy: Profile) -> None:
    machine = Machine(instances=("p5.48xlarge",), nodes=(1,))
    choices = Choices(layouts=(Layout(data=8),), micro_batches=(1,), offload=("parameters",))
    answer = search(Question(machine=machine, choices=choices), toy, load_catalogue())
    assert not answer.plans
    assert any("FSDP, which dp8 is not" in note for note in answer.notes)
