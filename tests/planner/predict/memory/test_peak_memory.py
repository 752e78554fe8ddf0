"""Memory under policies that lie between two that are traced, and of state in 16 bits."""

from dataclasses import replace

import pytest

from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import memory_parts
from gpuplan.profiles.profile import Profile

BASE = Setup(layout=Layout(), precision="bf16-amp", micro_batch=8, recompute="selective")
SPLIT = replace(BASE, layout=Layout(tensor=2), stack="megatron", autocast=False)


def peak_bytes(cache: ModelCache, setup: Setup) -> float:
    return memory_parts(cache, setup).peak_bytes.item()


@pytest.mark.parametrize("base", [BASE, SPLIT], ids=["whole", "split"])
def test_modes_of_selective_recompute_lie_between_their_ends(
    small_decoder: Profile, base: Setup
) -> None:
    cache = ModelCache(small_decoder)
    none, selective, full = (
        peak_bytes(cache, replace(base, recompute=policy))
        for policy in ("none", "selective", "full")
    )
    per_op = peak_bytes(cache, replace(base, features=frozenset({"recompute-per-op"})))
    per_layer = peak_bytes(cache, replace(base, features=frozenset({"recompute-per-layer"})))
    assert per_op == pytest.approx((5 * selective + 3 * full) / 8)
    assert per_layer == pytest.approx((none + full) / 2)


def test_megatron_keeps_gradients_as_it_reduces_them(small_decoder: Profile) -> None:
    cache = ModelCache(small_decoder)
    wide, narrow = (
        memory_parts(cache, replace(SPLIT, features=features)).gradients_bytes.item()
        for features in (frozenset(), frozenset({"reduce-bf16"}))
    )
    assert 0 < narrow == pytest.approx(wide / 2)


def test_compiled_blocks_keep_no_more_than_eager_ones(small_decoder: Profile) -> None:
    cache = ModelCache(small_decoder)
    plain = replace(BASE, recompute="none")
    assert peak_bytes(cache, replace(plain, compile=True)) <= peak_bytes(cache, plain)


def test_gradients_that_outlive_a_step_are_held_as_between_micro_batches(
    small_decoder: Profile,
) -> None:
    cache = ModelCache(small_decoder)
    plain = replace(BASE, recompute="none")
    kept = replace(plain, features=frozenset({"kept-gradients"}))
    more = peak_bytes(cache, kept) - peak_bytes(cache, plain)
    # Gradients are fp32 under autocast; a part of them was made at the peak in any case.
    assert 0 < more <= 4 * small_decoder.trainable_parameters
    assert peak_bytes(cache, kept) == peak_bytes(cache, replace(plain, grad_accum=2))
    assert peak_bytes(cache, replace(kept, grad_accum=4)) == peak_bytes(
        cache, replace(plain, grad_accum=4)
    )


@pytest.mark.parametrize("base", [BASE, SPLIT], ids=["whole", "split"])
def test_what_stops_after_the_backward_pass_keeps_no_optimizer_state(
    small_decoder: Profile, base: Setup
) -> None:
    cache = ModelCache(small_decoder)
    plain = memory_parts(cache, base)
    unstepped = memory_parts(cache, replace(base, optimizer="none"))
    assert plain.optimizer_bytes.item() > unstepped.optimizer_bytes.item() == 0


def test_a_loss_that_is_compiled_with_its_model_holds_fewer_logits(small_decoder: Profile) -> None:
    inside = ModelCache(small_decoder.model_copy(update={"loss_in_model": True}))
    outside = ModelCache(small_decoder)
    compiled = replace(BASE, recompute="none", micro_batch=64, compile=True)
    logits = 64 * 256 * 1000
    saved = peak_bytes(outside, compiled) - peak_bytes(inside, compiled)
    # The log-softmax, and its gradient, in fp32.
    assert saved >= 2 * 4 * logits
    for other in (
        replace(compiled, compile=False),
        replace(compiled, layout=Layout(data=2, shard=2, zero_stage=3)),
        replace(compiled, layout=Layout(tensor=2)),
    ):
        assert peak_bytes(inside, other) == peak_bytes(outside, other)


@pytest.mark.parametrize("zero_stage", [0, 1])
def test_buckets_that_are_no_views_lie_beside_gradients(
    small_decoder: Profile, zero_stage: int
) -> None:
    cache = ModelCache(small_decoder)
    layout = Layout(data=2, shard=2 if zero_stage else 1, zero_stage=zero_stage)
    views = replace(BASE, layout=layout, recompute="none", grad_accum=2)
    copies = replace(views, features=frozenset({"bucket-copies"}))
    gradients = 4 * small_decoder.trainable_parameters
    assert peak_bytes(cache, copies) - peak_bytes(cache, views) == gradients
    alone = replace(views, layout=Layout())
    assert peak_bytes(cache, replace(alone, features=copies.features)) == peak_bytes(cache, alone)


def test_torch_before_2_stepped_tensor_by_tensor(small_decoder: Profile) -> None:
    cache = ModelCache(small_decoder)
    today = replace(BASE, micro_batch=1, recompute="full")
    before = replace(today, software_date=(2022, 1))
    fused = replace(today, features=frozenset({"fused-optimizer"}))
    assert peak_bytes(cache, fused) <= peak_bytes(cache, before) < peak_bytes(cache, today)
