"""The parts of a measurement that need no step: the search, the watch, names of operations."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.catalog.errors import UserFileError
from gpuplan.profiles.measure import interference
from gpuplan.profiles.measure.input import input_pipeline
from gpuplan.profiles.measure.interference import Sample, Watch, device_contention
from gpuplan.profiles.measure.kernels import event_kind, kernel_times
from gpuplan.profiles.measure.largest_micro_batch import largest_micro_batch
from gpuplan.profiles.passes.recompute import KEPT_KINDS
from gpuplan.profiles.trace.kernels.count import kind_of
from gpuplan.profiles.user_model.training_step import KEPT_OPERATIONS

# --- search ---------------------------------------------------------------------------------------


@given(limit=st.integers(0, 5000), start=st.integers(1, 300))
def test_the_search_finds_the_largest_that_runs(limit: int, start: int) -> None:
    tried: list[int] = []

    def runs(samples: int) -> bool:
        tried.append(samples)
        return samples <= limit

    found = largest_micro_batch(runs, start=start, clock=lambda: 0.0)
    assert found.samples <= limit < (found.fails_at or 0)
    if limit < 64:
        assert found.samples == limit
    assert limit - found.samples <= limit / 64
    assert len(tried) == len(set(tried)), "no size is run twice"


def test_the_search_begins_below_a_size_that_failed() -> None:
    found = largest_micro_batch(lambda samples: samples <= 10, fails_at=16, clock=lambda: 0.0)
    assert (found.samples, found.fails_at) == (10, 11)


def test_the_search_ends_when_steps_take_too_long() -> None:
    now = iter(range(0, 10_000, 50))
    found = largest_micro_batch(lambda _samples: True, clock=lambda: float(next(now) ** 2))
    assert found.fails_at is None
    assert found.note and "ended early" in found.note


# --- kernels --------------------------------------------------------------------------------------


def event(name: str, parent: object = None, device: str = "DeviceType.CPU") -> SimpleNamespace:
    return SimpleNamespace(name=name, cpu_parent=parent, device_type=device)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["aten::addmm", "aten::copy_"], "gemm"),
        (["aten::convolution", "aten::cudnn_convolution"], "convolution"),
        (["Optimizer.step#AdamW.step", "aten::mul_"], "optimizer"),
        (["autograd::engine::evaluate_function: MmBackward0", "aten::mm"], "gemm"),
        (["aten::scaled_dot_product_attention", "aten::_flash_attention_forward"], "attention"),
        (["aten::dropout", "aten::bernoulli_"], "pointwise"),
        (["aten::layer_norm", "aten::native_layer_norm", "aten::empty"], "norm"),
        (["AddmmBackward0"], None),
    ],
)
def test_the_outermost_operation_with_a_kind_decides(names: list[str], kind: str | None) -> None:
    found = None
    for name in names:
        found = event(name, found)
    assert event_kind(found) == kind


def test_kernels_themselves_count_with_what_launched_them() -> None:
    assert event_kind(event("ampere_bf16_s1688gemm", device="DeviceType.CUDA")) is None


def test_a_matrix_product_takes_the_time_of_a_step_that_is_one() -> None:
    left, right = torch.randn(256, 256), torch.randn(256, 256)
    times = kernel_times(lambda: (left @ right, None)[1], "cpu")
    assert times[0].kind == "gemm"
    assert 0 < times[0].seconds < 1


def test_selective_recompute_keeps_the_kinds_that_the_planner_keeps() -> None:
    names = [name.removeprefix("_scaled_mm") or "mm" for name in KEPT_OPERATIONS]
    assert {kind_of(name) for name in names} == KEPT_KINDS - {"rnn"}


# --- watch ----------------------------------------------------------------------------------------


class Told:
    """A driver that says what it is given."""

    source = "nvml"

    def __init__(self, *samples: Sample) -> None:
        self.samples = list(samples)

    def read(self) -> Sample | None:
        return self.samples.pop(0) if len(self.samples) > 1 else self.samples[0]


def test_throttling_and_contention_are_reported() -> None:
    idle = Sample(busy_percent=40)
    hot = Sample(
        slowed_by=("power cap",), processes=3, clock_mhz=1200, max_clock_mhz=1980, temperature_c=84
    )
    with Watch(Told(idle, hot)) as watch:
        assert watch._first.wait(10)
    found = watch.conditions()
    assert found.throttled and "power cap" in found.throttled
    assert found.contention is not None
    assert "2 other processes on the device" in found.contention
    assert any("40 % busy before" in one for one in found.contention)
    assert (found.clock_mhz, found.temperature_c, found.source) == (1200, 84, "nvml")


def test_a_quiet_device_is_not_contended() -> None:
    assert device_contention(Sample(busy_percent=0), [Sample(processes=1)]) == []
    assert device_contention(None, [Sample()]) == []


def test_where_nobody_tells_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interference, "_counters", lambda: (0.0, None, 0.0, None))
    with Watch(None) as watch:
        assert watch.saw_something()
    found = watch.conditions()
    assert (found.throttled, found.contention, found.source) == (None, None, "unknown")


def test_other_processes_and_a_processor_limit_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(0.0, 0.0, 0.0, 4.0), (10.0, 18.0, 8.0, 5.0)])
    monkeypatch.setattr(interference, "_counters", lambda: next(readings))
    monkeypatch.setattr(interference.os, "cpu_count", lambda: 2)
    with Watch(None) as watch:
        pass
    found = watch.conditions()
    assert found.contention == ("other processes used 1.0 of 2 cores",)
    assert found.throttled == ("the container's processor limit",)


def test_what_nvidia_smi_prints_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(arguments: list[str], **_: object) -> SimpleNamespace:
        asked = arguments[2]
        known = "1980, 1980, 61, [N/A], 99, 0x0000000000000004\n"
        return SimpleNamespace(stdout=known if "query-gpu" in asked else "12\n345\n")

    monkeypatch.setattr(interference.subprocess, "run", answer)
    found = interference.SmiReader("GPU-0").read()
    assert found == Sample(
        clock_mhz=1980,
        max_clock_mhz=1980,
        temperature_c=61,
        busy_percent=99,
        slowed_by=("power cap",),
        processes=2,
    )


def test_without_a_driver_nobody_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError("nvidia-smi")

    monkeypatch.setattr(interference.subprocess, "run", missing)
    assert interference.SmiReader("GPU-0").read() is None


# --- input ----------------------------------------------------------------------------------------


def test_a_slow_input_makes_the_step_wait() -> None:
    samples = [torch.zeros(4) for _ in range(32)]
    tried: list[int] = []
    found = input_pipeline(
        samples, batch_size=8, step_s=1e-9, cores=0, ran=tried.append, seconds_each=0.02
    )
    assert tried == [0]
    assert found.waiting_share > 0.9, "a step of a nanosecond waits for any input"
    assert found.best_samples_per_s == found.speeds[0].samples_per_s
    slow = input_pipeline(
        samples, batch_size=8, step_s=60, cores=0, ran=tried.append, seconds_each=0.02
    )
    assert slow.waiting_share == 0


@pytest.mark.parametrize("dataset", [3, []])
def test_what_is_no_data_set_is_an_error(dataset: object) -> None:
    with pytest.raises((UserFileError, ValueError)):
        input_pipeline(dataset, batch_size=2, step_s=1, cores=0, ran=lambda _n: None)
