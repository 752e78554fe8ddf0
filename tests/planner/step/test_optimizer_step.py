"""Seconds of the optimizer's step: of all that is trained, and of the rows of sparse gradients."""

import numpy as np
import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.catalog.vocabulary import Precision, Stack
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.plan.layout import parse_layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.setup import stack_facts
from gpuplan.planner.predict.step_time import step_parts
from gpuplan.planner.software.versions import CLIPPED_LAUNCHES
from gpuplan.planner.step.data_parallel_step import accumulation_s, optimizer_s
from gpuplan.profiles.profile import Profile

MANY_BYTES = 2_000_000


def seconds(profile: Profile, samples: list[int]) -> np.ndarray:
    cache = ModelCache(profile)
    one = parse_layout("dp1")
    setup = Setup(layout=one, precision="fp32", micro_batch=1, stack="torch-eager")
    return optimizer_s(
        profile,
        [one],
        cache.curves(load_catalogue().accelerators["A100-80GB-SXM"]),
        stack_facts(setup, cache.constants),
        samples=np.array([samples]),
    )


def test_rows_of_more_samples_take_longer(toy: Profile) -> None:
    facts = toy.optimizer.model_copy(update={"step_bytes_per_sample": float(MANY_BYTES)})
    rows = toy.model_copy(update={"optimizer": facts})
    dense, (few, more, most) = seconds(toy, [1, 1, 1]), seconds(rows, [1000, 2000, 4000])[0]
    assert dense.shape == (1, 1) and dense.item() < few < more < most
    assert (most - more) / (more - few) == pytest.approx(2, rel=0.05)


def looped_s(profile: Profile, date: tuple[int, int] | None, *features: str) -> float:
    cache = ModelCache(profile)
    one = parse_layout("dp1")
    setup = Setup(
        layout=one,
        precision="fp32",
        micro_batch=1,
        stack="torch-eager",
        software_date=date,
        features=frozenset(features),
    )
    curves = cache.curves(load_catalogue().accelerators["A100-80GB-SXM"])
    stack = stack_facts(setup, cache.constants)
    return optimizer_s(profile, [one], curves, stack, samples=np.array([[1]])).item()


def test_a_loop_that_clips_each_tensor_waits_for_the_device_under_old_torch(toy: Profile) -> None:
    launch_s = ModelCache(toy).constants["launch_s.torch-eager"]
    turns_s = toy.parameter_tensors * CLIPPED_LAUNCHES * launch_s
    for date in ((2020, 10), (2021, 9)):
        alone, clipped = looped_s(toy, date), looped_s(toy, date, "clipped-by-tensor")
        assert clipped > turns_s > alone, "the device's time adds to the host's"
    assert looped_s(toy, (2021, 10), "clipped-by-tensor") == pytest.approx(turns_s)
    assert looped_s(toy, None, "clipped-by-tensor") == pytest.approx(turns_s)


def test_state_in_16_bits_moves_half_as_much(small_decoder: Profile) -> None:
    steps = ModelCache(small_decoder).steps
    mixed, pure = steps.optimizer("bf16-amp"), steps.optimizer("bf16")
    assert mixed == small_decoder.optimizer
    assert pure.step_bytes_per_parameter == pytest.approx(mixed.step_bytes_per_parameter / 2)
    assert pure.launches == mixed.launches


def test_a_step_in_bf16_spends_half_as_long_in_the_optimizer(small_decoder: Profile) -> None:
    cache, device = ModelCache(small_decoder), load_catalogue().accelerators["A100-80GB-SXM"]
    link = Link(name=None, bytes_per_s=None)
    where = Site(accelerator=device, per_node=1, nodes=1, intra_link=link, inter_link=link)

    def optimizer_s(precision: Precision) -> float:
        setup = Setup(layout=parse_layout("dp1"), precision=precision, micro_batch=1)
        # Without launches, which hide the bytes of a small model.
        free = {name: 0.0 for name in cache.constants if name.startswith("launch_s.")}
        free_of_host = cache.with_constants(cache.constants.replaced(free))
        return np.asarray(step_parts(free_of_host, where, setup).optimizer_s).item()

    floor_s = float(cache.curves(device).memory_bound_s(0, kind="optimizer"))
    mixed, pure = (optimizer_s(one) - floor_s for one in ("bf16-amp", "bf16"))
    assert pure == pytest.approx(mixed / 2)


def test_what_is_scattered_in_every_micro_batch_is_added_up_in_shards(toy: Profile) -> None:
    curves = ModelCache(toy).curves(load_catalogue().accelerators["A100-80GB-SXM"])

    def adding(layout: str, stack: Stack = "torch-eager") -> float:
        return accumulation_s(toy, [parse_layout(layout)], curves, 12.0, stack=stack).item()

    assert adding("fsdp8") == adding("dp8.zero2") < adding("dp8.zero1") == adding("dp8")
    assert adding("dp8.zero2", "megatron") == adding("dp8", "megatron")


def test_sparse_gradients_are_not_added_up_over_whole_tables(toy: Profile) -> None:
    sparse = toy.trained_parameters - 1000
    of_rows = toy.model_copy(update={"sparse_parameters": sparse})
    of_few = toy.model_copy(update={"trainable_parameters": 1000, "unused_parameters": 0})
    cache = ModelCache(toy)
    curves = cache.curves(load_catalogue().accelerators["A100-80GB-SXM"])

    def adding(profile: Profile) -> float:
        return accumulation_s(
            profile, [parse_layout("dp1")], curves, 12.0, stack="torch-eager"
        ).item()

    assert adding(of_rows) == adding(of_few) < adding(toy)
