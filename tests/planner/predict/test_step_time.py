"""The parts of one setup's step: which there are, and what each depends on."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.catalog.vocabulary import Stack
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.setup import Setup, stack_facts
from gpuplan.planner.predict.step_time import (
    data_parallel_parts,
    doubts_of,
    planned_step_s,
    step_parts,
    variants_of,
)
from gpuplan.profiles.profile import Profile

relaxed = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PLAIN = Setup(layout=Layout(), precision="bf16-amp", micro_batch=4)


def site(accelerators: int = 1, nodes: int = 1) -> Site:
    device = load_catalogue().accelerators["A100-80GB-SXM"]
    return Site(
        accelerator=device,
        per_node=accelerators,
        nodes=nodes,
        intra_link=Link(name="link", bytes_per_s=device.link_bytes_per_s),
        inter_link=Link(name="fabric", bytes_per_s=50e9, rdma=True),
        host_memory_bytes=1e12,
        vcpus=96,
    )


def test_one_rank_sends_nothing_and_its_parts_are_single_figures(toy: Profile) -> None:
    parts = step_parts(ModelCache(toy), site(), PLAIN)
    assert parts.total_s.shape == (1, 1)
    assert parts.data_comm_exposed_s.item() == 0
    assert parts.compute_s.item() > 0 and parts.memory_bound_s.item() > 0
    assert parts.optimizer_s.item() > 0


def test_a_loss_in_one_kernel_moves_no_fp32_logits(small_decoder: Profile) -> None:
    def moved_s(setup: Setup) -> float:
        return step_parts(ModelCache(small_decoder), site(8), setup).memory_bound_s.item()

    stated = frozenset({"fused-cross-entropy"})
    compiled = replace(PLAIN, compile=True)
    for layout in (Layout(), Layout(data=8, shard=8, zero_stage=3), Layout(tensor=2)):
        plain = replace(compiled, layout=layout)
        assert moved_s(replace(plain, features=stated)) < moved_s(plain)
    assert moved_s(replace(PLAIN, features=stated)) == moved_s(PLAIN)


@relaxed
@given(accum=st.integers(2, 64))
def test_each_further_micro_batch_takes_the_same_time(toy: Profile, accum: int) -> None:
    cache = ModelCache(toy)

    def seconds(count: int) -> float:
        return planned_step_s(cache, site(), replace(PLAIN, grad_accum=count))

    one, two = seconds(1), seconds(2)
    assert seconds(accum) == pytest.approx(one + (accum - 1) * (two - one), rel=1e-9)
    once = step_parts(cache, site(), PLAIN)
    often = step_parts(cache, site(), replace(PLAIN, grad_accum=accum))
    assert often.compute_s.item() == pytest.approx(accum * once.compute_s.item())
    assert often.optimizer_s.item() == once.optimizer_s.item()


def test_gradients_that_outlive_a_step_are_added_to_in_each_micro_batch(toy: Profile) -> None:
    cache = ModelCache(toy)

    def seconds(count: int, features: frozenset[str] = frozenset()) -> float:
        setup = replace(PLAIN, grad_accum=count, features=features)
        return step_parts(cache, site(), setup).memory_bound_s.item()

    kept = frozenset({"kept-gradients"})
    adding = seconds(2) - 2 * seconds(1)
    assert adding > 0
    assert seconds(1, kept) - seconds(1) == pytest.approx(adding)
    assert seconds(3, kept) - seconds(3) == pytest.approx(adding)


def test_without_an_optimizer_its_part_alone_is_missing(toy: Profile) -> None:
    cache = ModelCache(toy)
    whole = step_parts(cache, site(), PLAIN)
    without = planned_step_s(cache, site(), replace(PLAIN, optimizer="none"))
    assert without == whole.total_s.item() - whole.optimizer_s.item()


def test_the_host_is_in_the_step_where_something_is_offloaded(toy: Profile) -> None:
    cache = ModelCache(toy)
    on_device = step_parts(cache, site(), PLAIN)
    on_host = step_parts(cache, site(), replace(PLAIN, offload=frozenset({"optimizer"})))
    assert np.asarray(on_device.host_comm_exposed_s).item() == 0
    assert np.asarray(on_host.host_comm_exposed_s).item() > 0
    assert on_host.total_s.item() > on_device.total_s.item()


def test_variants_are_every_policy_with_every_size_sizes_first(toy: Profile) -> None:
    cache, device = ModelCache(toy), site().accelerator
    both = variants_of(cache, device, PLAIN, ("none", "none"), np.array([1, 4]))
    assert both.recompute == ("none",) * 4
    assert both.micro_batch.tolist() == [1, 4, 1, 4]
    forward = both.times.forward_s.tolist()
    assert forward[:2] == forward[2:] and forward[0] < forward[1]
    assert both.offloaded_activation_bytes.tolist() == [0] * 4


def test_layouts_and_variants_span_a_table(toy: Profile) -> None:
    cache, where = ModelCache(toy), site(8)
    layouts = (Layout(data=8), Layout(data=8, shard=8, zero_stage=3))
    variants = variants_of(cache, where.accelerator, PLAIN, ("none",), np.array([1, 2, 4]))
    accum = np.array([[1, 1, 1], [4, 2, 1]])
    table = data_parallel_parts(cache, where, layouts, variants, accum).total_s
    assert table.shape == (2, 3)
    alone = step_parts(cache, where, replace(PLAIN, layout=layouts[1], micro_batch=2, grad_accum=2))
    assert table[1, 1] == pytest.approx(alone.total_s.item(), rel=1e-12)


def test_more_nodes_bring_more_doubt(toy: Profile) -> None:
    cache = ModelCache(toy)

    def doubt(nodes: int) -> float:
        where = site(8, nodes)
        setup = replace(PLAIN, layout=Layout(data=where.accelerators))
        parts = step_parts(cache, where, setup)
        return sum(x * x for x in doubts_of(cache, where, setup, parts).values())

    assert 0 < doubt(1) <= doubt(16)


def test_steps_that_wait_for_the_host_are_less_sure(toy: Profile) -> None:
    cache, where = ModelCache(toy), site(1)

    def doubt(micro_batch: int, stack: Stack = "torch-eager") -> float:
        setup = replace(PLAIN, micro_batch=micro_batch, stack=stack)
        return doubts_of(cache, where, setup, step_parts(cache, where, setup))["slow_host"]

    small, large = doubt(1), doubt(256)
    assert 0 <= large < 0.2 * small < 0.2 * math.log(5)
    assert doubt(1, "xla") == 0


@pytest.mark.parametrize("layout", [Layout(data=8), Layout(data=4, pipeline=2)], ids=["dp", "pp"])
def test_norms_of_all_ranks_lengthen_every_micro_batch(toy: Profile, layout: Layout) -> None:
    norms = toy.model_copy(update={"synced_norms": (64,) * 50})

    def sent_s(profile: Profile, accum: int) -> float:
        setup = replace(PLAIN, layout=layout, grad_accum=accum, stack="megatron", autocast=False)
        return step_parts(ModelCache(profile), site(8), setup).data_comm_exposed_s.item()

    twice = sent_s(norms, 2) - sent_s(toy, 2)
    assert twice > 2 * 50 * 2 * 5e-6  # Of two collectives a norm, none takes less than this.
    assert sent_s(norms, 6) - sent_s(toy, 6) == pytest.approx(3 * twice, rel=1e-6)


def test_attention_with_a_mask_is_that_of_the_stack(toy: Profile) -> None:
    """The wiring from a setup to `StackFacts.torch_attention`."""
    assert stack_facts(PLAIN, ModelCache(toy).constants).torch_attention
    for other in (
        replace(PLAIN, stack="megatron", autocast=False),
        replace(PLAIN, features=frozenset({"transformer-engine"})),
    ):
        assert not stack_facts(other, ModelCache(toy).constants).torch_attention
