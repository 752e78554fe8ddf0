"""Laws of recompute and of partial training, on a small decoder that is really traced."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.predict import predict
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

EXAMPLES = Path(__file__).parents[2] / "examples"
DIMS = {"layers": 4, "hidden": 256, "heads": 4, "kv_heads": 4, "ffn": 1024, "vocab": 1000}
DIMS |= {"seq_len": 256, "ffn_kind": "swiglu"}
POLICIES = ("none", "selective", "full")


def traced(name: str, **params: object) -> Profile:
    spec = parse_model_spec(str(EXAMPLES / name), params=params)
    return make_profile(spec, numerics=("amp16", "fp32"), use_cache=False)


@pytest.fixture(scope="module")
def cache() -> ModelCache:
    return ModelCache(traced("decoder.py", **DIMS))


def ask(cache: ModelCache, **changes: object):  # type: ignore[no-untyped-def]
    accelerator = load_catalogue().accelerators["A100-80GB-SXM"]
    link = Link(name=None, bytes_per_s=accelerator.link_bytes_per_s)
    site = Site(accelerator=accelerator, per_node=1, nodes=1, intra_link=link, inter_link=link)
    setup = Setup(layout=Layout(), precision="bf16-amp", micro_batch=4)
    return predict(cache.profile, site, _changed(setup, changes), cache=cache)


def _changed(setup: Setup, changes: dict[str, object]) -> Setup:
    from dataclasses import replace

    return replace(setup, **changes)  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(size=st.integers(2, 64), precision=st.sampled_from(["tf32", "bf16-amp"]))
def test_recompute_holds_no_more_and_is_never_faster(
    cache: ModelCache, size: int, precision: str
) -> None:
    asked = {"micro_batch": size, "precision": precision}
    answers = [ask(cache, **asked, recompute=policy) for policy in POLICIES]
    peaks = [answer.peak_allocated_bytes for answer in answers]
    times = [answer.step_time_s.value for answer in answers]
    assert peaks == sorted(peaks, reverse=True)
    # Eager torch runs selective recompute through a mode in Python: where kernels are short it
    # takes longer than to compute everything again.
    assert times[0] <= min(times[1:])
    compiled = [ask(cache, **asked, recompute=one, stack="torch-compile") for one in POLICIES]
    times = [answer.step_time_s.value for answer in compiled]
    assert times == sorted(times)


@pytest.mark.slow
def test_hardware_flops_count_the_second_forward(cache: ModelCache) -> None:
    plain = cache.steps.hardware_flops("bf16-amp", "none", 4)
    full = cache.steps.hardware_flops("bf16-amp", "full", 4)
    assert plain == cache.profile.flops.at(4)
    assert 1.2 * plain < full < 4 / 3 * plain + 1


@pytest.mark.slow
def test_a_profile_survives_json(cache: ModelCache) -> None:
    profile = cache.profile
    assert Profile.model_validate_json(profile.model_dump_json()) == profile


@pytest.mark.slow
def test_adapters_hold_less_than_full_training() -> None:
    small = {"layers": 4, "hidden": 256, "heads": 4, "kv_heads": 4, "ffn": 1024, "vocab": 1000}
    part = ModelCache(traced("lora.py", **small, seq_len=256))
    whole = ModelCache(traced("decoder.py", **small, seq_len=256, ffn_kind="swiglu"))
    for size in (1, 4, 16):
        lora, full = ask(part, micro_batch=size), ask(whole, micro_batch=size)
        held = lora.memory_breakdown_bytes
        assert held.optimizer + held.gradients < full.memory_breakdown_bytes.optimizer
        assert lora.peak_allocated_bytes <= full.peak_allocated_bytes


@pytest.mark.slow
def test_the_envelope_is_the_replayed_peak(cache: ModelCache) -> None:
    from gpuplan.planner.memory.rank_memory import rank_memory
    from gpuplan.profiles.analysis.replay import replay

    sizes = np.array([2, 5, 16])
    for policy in POLICIES:
        shape = cache.steps.envelope("bf16-amp", policy, sizes)
        memory = rank_memory(shape, cache.profile, Layout(), compute_bytes=2)
        trace = cache.steps.trace("bf16-amp", policy)
        exact = [replay(trace, int(size)).peak_allocated_bytes for size in sizes]
        # The allocator also hands out whole blocks where the rest is not worth splitting off.
        assert memory.peak_bytes == pytest.approx(exact, rel=0.01)
