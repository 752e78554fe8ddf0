"""What FSDP holds from one micro-batch of a step to the next, beside traces of torch's own."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuplan.planner.memory.rank_memory import rank_memory
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import state_of
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

TESTS = Path(__file__).parents[2]
GOLDEN = TESTS / "planner" / "parallelism" / "fsdp_golden"


@pytest.fixture(scope="module")
def gpt2() -> Profile:
    params = read("gpt2-16-bf16-keep")["params"]
    spec = parse_model_spec(str(TESTS.parent / "examples" / "decoder.py"), params=params)
    return make_profile(spec, numerics=("fp32", "amp16", "pure16"))


def read(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / f"{name}.json").read_text())


@pytest.mark.parametrize("zero_stage", [2, 3])
@pytest.mark.parametrize("precision", ["bf16-amp", "fp32"])
def test_without_activations_a_rank_holds_what_torch_holds(
    gpt2: Profile, zero_stage: int, precision: Any
) -> None:
    kind = "bf16" if precision == "bf16-amp" else "fp32"
    name = f"gpt2-16-{kind}-{'keep' if zero_stage == 2 else 'reshard'}-3-times"
    golden = read(name)
    setup = Setup(
        layout=Layout(data=16, shard=16, zero_stage=zero_stage),
        precision=precision,
        micro_batch=1,
        grad_accum=golden["grad_accum"],
        autocast=False,
    )
    cache, width = ModelCache(gpt2), 2 if precision == "bf16-amp" else 4
    numerics = cache.numerics(precision, autocast=False)
    traced = cache.steps.envelope(precision, "none", np.array([1]), autocast=False)
    nothing = np.zeros_like(traced.activation_bytes)
    shape = replace(traced, activation_bytes=nothing, temporary_bytes=nothing, input_bytes=nothing)
    found = rank_memory(
        shape,
        gpt2,
        setup.layout,
        compute_bytes=width,
        grad_accum=golden["grad_accum"],
        state=state_of(setup, numerics, gpt2),
    )
    held = golden["persistent_bytes"]
    state = held["parameters"] + held["optimizer"] + held["gradients"]
    expected = state + golden["sharding_buffers_peak"]["bytes"]
    assert found.peak_bytes.item() == pytest.approx(expected, rel=2e-3)
