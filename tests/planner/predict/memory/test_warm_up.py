"""What the pool keeps from a pass before training."""

from dataclasses import replace

import numpy as np
import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import Pool, memory_parts, pool_of
from gpuplan.planner.predict.memory.warm_up import FP32_FORWARD_FIRST, warm_up_bytes
from gpuplan.profiles.profile import Profile

DEVICE = load_catalogue().accelerators["A100-80GB-SXM"]
PLAIN = Setup(layout=Layout(), precision="fp16-amp", micro_batch=4)
WARMED = replace(PLAIN, features=frozenset({FP32_FORWARD_FIRST}))


def test_a_pass_holds_parameters_and_what_backward_would_need(toy: Profile) -> None:
    cache = ModelCache(toy)
    assert warm_up_bytes(cache, PLAIN) == 0
    held = warm_up_bytes(cache, WARMED)
    saved = cache.steps.envelope("fp32", "none", np.array([4])).activation_bytes.max()
    assert held > 4 * toy.parameters
    assert held >= 4 * toy.parameters + saved
    # The optimizer's state and gradients are not made yet.
    assert held < memory_parts(cache, replace(PLAIN, precision="fp32")).peak_bytes.item()


def test_the_pool_shows_the_larger_of_pass_and_step(toy: Profile) -> None:
    cache = ModelCache(toy)
    held = warm_up_bytes(cache, WARMED)
    small, large = 0.1 * held, 10 * held

    def pool(setup: Setup, allocated: float) -> Pool:
        return pool_of(cache, DEVICE, setup, allocated, room=20 * held)

    assert pool(WARMED, small).held_bytes == pytest.approx(held)
    assert not pool(WARMED, small).is_short
    assert pool(WARMED, large) == pool(PLAIN, large)
    assert pool(PLAIN, small).held_bytes < held


def test_a_device_that_is_too_small_for_the_pass_is_short(toy: Profile) -> None:
    cache = ModelCache(toy)
    held = warm_up_bytes(cache, WARMED)
    pool = pool_of(cache, DEVICE, WARMED, 0.1 * held, room=0.5 * held)
    assert pool.is_short and pool.held_bytes >= held and pool.least_bytes >= held
