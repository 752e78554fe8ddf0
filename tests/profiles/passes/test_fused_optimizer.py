"""Torch's fused Adam, derived from its foreach one, equals what a trace of the fused one shows."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gpuplan.profiles.analysis.replay import replay
from gpuplan.profiles.passes.fused_optimizer import can_be_fused, with_fused_optimizer
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.trace.trace import trace_workload

OWN: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "amsgrad": lambda p, **how: torch.optim.AdamW(p, amsgrad=True, **how),
}


@pytest.fixture
def traced(example_workload: Any) -> Callable[..., Profile]:
    def trace(build: Callable[..., torch.optim.Optimizer], numerics: str = "fp32") -> Profile:
        workload = example_workload("gpt2", layers=2, seq_len=64, vocab=2000)
        own = dataclasses.replace(workload, build_optimizer=build)
        return trace_workload(own, numerics=[numerics])  # pyright: ignore[reportArgumentType]

    return trace


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "numerics"), [("adamw", "fp32"), ("adam", "fp32"), ("amsgrad", "fp32")]
)
def test_it_equals_a_trace_of_the_fused_one(
    name: str, numerics: str, traced: Callable[..., Profile]
) -> None:
    real = traced(lambda p: OWN[name](p, fused=True), numerics)
    plain = traced(OWN[name], numerics)
    assert can_be_fused(plain)
    assert not can_be_fused(real)
    derived = with_fused_optimizer(plain)
    expected, found = real.optimizer, derived.optimizer
    assert found.step_bytes_per_parameter == pytest.approx(
        expected.step_bytes_per_parameter, rel=0.001
    )
    assert found.state_bytes_per_parameter == pytest.approx(
        expected.state_bytes_per_parameter, rel=0.001
    )
    assert found.temporary_bytes_per_parameter == expected.temporary_bytes_per_parameter == 0
    assert found.launches == expected.launches
    for micro_batch in (1, 16):
        assert replay(derived.steps[0], micro_batch).peak_allocated_bytes == pytest.approx(
            replay(real.steps[0], micro_batch).peak_allocated_bytes, rel=0.001
        )


@pytest.mark.slow
def test_others_are_left_alone(traced: Callable[..., Profile]) -> None:
    assert not can_be_fused(traced(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)))
    assert not can_be_fused(traced(lambda p: torch.optim.AdamW(p, foreach=False)))
