"""The what-if optimizers equal what a trace of torch's own ones shows."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gpuplan.catalog.errors import UsageError
from gpuplan.profiles.analysis.replay import replay
from gpuplan.profiles.passes.optimizer_rules import multi_tensor_launches
from gpuplan.profiles.passes.optimizers import with_optimizer
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.trace.trace import trace_workload

Build = Callable[[Any], torch.optim.Optimizer]
OWN: dict[str, Build] = {
    "adamw": lambda p: torch.optim.AdamW(p),
    "adam": lambda p: torch.optim.Adam(p),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adafactor": lambda p: torch.optim.Adafactor(p),
}


@pytest.fixture(scope="module")
def traced() -> Callable[..., Profile]:
    return _Traces().trace


class _Traces:
    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Profile] = {}

    def trace(self, workload: Any, name: str, numerics: Any) -> Profile:
        if (name, numerics) not in self._made:
            own = dataclasses.replace(workload, build_optimizer=OWN[name])
            self._made[name, numerics] = trace_workload(own, numerics=[numerics])
        return self._made[name, numerics]


@pytest.fixture
def workload(example_workload: Any) -> Any:
    return example_workload("gpt2", layers=3, seq_len=128, vocab=5000)


@pytest.mark.slow
@pytest.mark.parametrize("numerics", ["fp32", "pure16"])
@pytest.mark.parametrize("name", OWN)
def test_rules_equal_a_trace(name: str, numerics: Any, workload: Any, traced: Any) -> None:
    before = "sgd" if name != "sgd" else "adam"
    real = traced(workload, name, numerics)
    derived = with_optimizer(traced(workload, before, numerics), name)
    expected, found = real.optimizer, derived.optimizer
    assert found.name == name
    assert found.state_bytes_per_parameter == pytest.approx(
        expected.state_bytes_per_parameter, rel=0.02
    )
    assert found.step_bytes_per_parameter == pytest.approx(
        expected.step_bytes_per_parameter, rel=0.05
    )
    assert found.temporary_bytes_per_parameter == pytest.approx(
        expected.temporary_bytes_per_parameter, rel=0.05
    )
    assert found.launches == pytest.approx(expected.launches, rel=0.05)
    for micro_batch in (1, 16):
        assert replay(derived.steps[0], micro_batch).peak_allocated_bytes == pytest.approx(
            replay(real.steps[0], micro_batch).peak_allocated_bytes, rel=0.01
        )


@pytest.mark.slow
def test_lighter_optimizers_keep_less(workload: Any, traced: Any) -> None:
    profile = traced(workload, "adam", "fp32")
    state = {
        name: with_optimizer(profile, name).optimizer.state_bytes_per_parameter
        for name in ("adamw", "adamw8bit", "sgd", "muon", "adafactor")
    }
    assert state["adamw"] == 8
    assert state["adamw8bit"] == pytest.approx(2.03, abs=0.01)
    assert state["adafactor"] < state["adamw8bit"] < state["sgd"] < state["muon"] < 8


@pytest.mark.slow
def test_muon_multiplies_the_matrices_of_the_blocks(workload: Any, traced: Any) -> None:
    profile = with_optimizer(traced(workload, "adam", "fp32"), "muon")
    kernels = [k for s in profile.steps[0].segments[-1:] for k in s.kernels]
    flops = sum(k.flops.base for k in kernels)
    expected = 0
    for m, n in ((768, 2304), (768, 768), (768, 3072), (768, 3072)):
        expected += 3 * 5 * (4 * m * m * n + 2 * m**3)
    assert flops == expected


@pytest.mark.slow
def test_the_same_optimizer_changes_nothing_and_an_unknown_one_is_an_error(
    workload: Any, traced: Any
) -> None:
    profile = traced(workload, "adam", "fp32")
    assert with_optimizer(profile, "adam") is profile
    with pytest.raises(UsageError, match="adamw8bit"):
        with_optimizer(profile, "adamw8bits")
    derived = with_optimizer(profile, "sgd")
    assert Profile.model_validate_json(derived.model_dump_json()) == derived


def test_launches_follow_the_limits_of_one_launch() -> None:
    assert multi_tensor_launches([10] * 110, 1) == 1
    assert multi_tensor_launches([10] * 111, 1) == 2
    assert multi_tensor_launches([10] * 48, 3) == 1
    assert multi_tensor_launches([65536 * 320], 1) == 1
    assert multi_tensor_launches([65536 * 320 + 1], 1) == 2
