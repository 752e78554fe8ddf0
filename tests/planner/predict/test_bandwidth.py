"""The share of memory bandwidth: bytes of the kernels over what the memory could move."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.layout import parse_layout
from gpuplan.planner.plan.question import Machine, Money
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.bandwidth import bandwidth_share
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.predict import predict
from gpuplan.planner.search.machines.offers import survey
from gpuplan.profiles.profile import Kernel, Profile, StepTrace

SITE = survey(load_catalogue(), Machine(instances=("p4d.24xlarge",)), Money()).choices[0].one_node
PEAK = SITE.accelerator.memory_bandwidth_bytes_per_s


def setup_of(layout: str = "dp8", **fields: object) -> Setup:
    asked = {"precision": "bf16-amp", "micro_batch": 4, **fields}
    return Setup(layout=parse_layout(layout), **asked)  # pyright: ignore[reportArgumentType]


def test_it_is_the_bytes_of_every_kernel_and_of_the_optimizer(
    make_decoder: Callable[..., Profile],
) -> None:
    profile = make_decoder()
    step = profile.step("amp16")
    run = [step.segments[i] for i in step.schedule]
    kernels = [k for segment in run if segment.phase != "optimizer" for k in segment.kernels]
    moved = sum(k.bytes_read.at(4) + k.bytes_written.at(4) for k in kernels)
    found = bandwidth_share(ModelCache(profile), SITE, setup_of(optimizer="none"), 2.0)
    assert found == pytest.approx(moved / (2.0 * PEAK))
    with_step = bandwidth_share(ModelCache(profile), SITE, setup_of(), 2.0)
    assert with_step is not None and found is not None and with_step > found


def test_it_falls_with_time_and_with_a_sharded_optimizer(
    make_decoder: Callable[..., Profile],
) -> None:
    cache = ModelCache(make_decoder())
    usual = bandwidth_share(cache, SITE, setup_of(), 1.0)
    assert usual is not None
    assert bandwidth_share(cache, SITE, setup_of(), 2.0) == pytest.approx(usual / 2)
    sharded = bandwidth_share(cache, SITE, setup_of("dp8.zero1"), 1.0)
    assert sharded is not None and sharded < usual


def test_every_micro_batch_moves_its_bytes_and_adds_its_gradients(
    make_decoder: Callable[..., Profile],
) -> None:
    profile = make_decoder()
    cache = ModelCache(profile)
    one, two, three = (
        bandwidth_share(cache, SITE, setup_of(grad_accum=count), 1.0) for count in (1, 2, 3)
    )
    assert one is not None and two is not None and three is not None
    assert three - two == pytest.approx(two - one)
    assert (two - one) * PEAK > 12 * profile.trainable_parameters


def test_it_is_not_defined_where_the_model_is_split(make_decoder: Callable[..., Profile]) -> None:
    split = setup_of("dp4.tp2")
    assert bandwidth_share(ModelCache(make_decoder()), SITE, split, 1.0) is None


def test_a_prediction_has_it_and_no_memory_moves_more_than_it_can(
    make_decoder: Callable[..., Profile],
) -> None:
    found = predict(make_decoder(), replace(SITE, nodes=1), setup_of())
    assert found.bandwidth_share is not None
    assert 0 < found.bandwidth_share < 1.2


def test_a_frozen_base_in_16_bits_moves_the_bytes_of_its_own_trace(
    make_decoder: Callable[..., Profile],
) -> None:
    """They were those of the trace in fp32, twice as many: 119 % of the bandwidth."""
    profile = make_decoder()
    halved = _halved(profile.step("amp16")).model_copy(update={"numerics": "frozen16"})
    both = profile.model_copy(update={"steps": (*profile.steps, halved)})
    whole = setup_of(optimizer="none")
    usual = bandwidth_share(ModelCache(both), SITE, whole, 1.0)
    kept = bandwidth_share(ModelCache(both), SITE, replace(whole, frozen_precision="bf16"), 1.0)
    assert usual is not None
    assert kept == pytest.approx(usual / 2)


def _halved(step: StepTrace) -> StepTrace:
    """Return a step whose kernels move half of the bytes."""

    def half(kernel: Kernel) -> Kernel:
        read, written = kernel.bytes_read.times(0.5), kernel.bytes_written.times(0.5)
        return kernel.model_copy(update={"bytes_read": read, "bytes_written": written})

    segments = tuple(
        one.model_copy(update={"kernels": tuple(map(half, one.kernels))}) for one in step.segments
    )
    return step.model_copy(update={"segments": segments})
