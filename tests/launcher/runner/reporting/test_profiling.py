"""Profiled steps: whose time is whose, on a processor and as a CUDA device reports it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from gpuplan.launcher.runner.job import Job
from gpuplan.launcher.runner.reporting.kernel_times import part_of, step_times
from gpuplan.launcher.runner.reporting.profiling import StepProfiler
from gpuplan.launcher.runner.training_options import TrainingOptions
from gpuplan.profiles.measure.kernels import event_kind
from gpuplan.profiles.user_model.spec import parse_model_spec

EXAMPLE = Path(__file__).parents[4] / "examples" / "lstm.py"
MULTIPLY = ("gemm", "attention", "convolution", "rnn")


class Net(nn.Module):
    """Every kind of operation that is told apart."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.rnn = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.rnn(self.attention(x))[0]).softmax(-1).var()


def watched(folder: Path, asked: tuple[int, int], steps: int, told: list[str]) -> StepProfiler:
    """Return a profiler after so many steps of a small net."""
    training = TrainingOptions(profile_steps=asked)
    job = Job(
        spec=parse_model_spec(str(EXAMPLE)),
        plan=None,
        out_dir=folder,
        steps=steps,
        execution=None,
        training=training,
    )
    profiler = StepProfiler(job, torch.device("cpu"), is_first=True, tell=told.append)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    for step in range(1, steps + 1):
        profiler.begin(step)
        net(torch.randn(2, 16, 8)).backward()
        optimizer.step()
        optimizer.zero_grad()
        profiler.end(step)
    return profiler


def test_the_parts_of_a_real_step_are_those_that_a_measurement_tells_apart(tmp_path: Path) -> None:
    """`event_kind` measures kernels for the curves: both divide the same events alike."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), momentum=0.9)
        net(torch.randn(2, 16, 8)).backward()
        optimizer.step()
    events = [one for one in profiler.events() or () if not one.is_user_annotation]
    expected = {
        None: None,
        "optimizer": "optimizer",
        **dict.fromkeys(MULTIPLY, "compute"),
    }
    differ = {
        (one.name, event_kind(one), part_of(one))
        for one in events
        if expected.get(event_kind(one), "memory_bound") != part_of(one)
    }
    assert not differ
    assert {part_of(one) for one in events} >= {"compute", "memory_bound", "optimizer"}


def test_the_steps_that_are_asked_for_are_written_and_no_other(tmp_path: Path) -> None:
    told: list[str] = []
    watched(tmp_path, (2, 3), 5, told)
    found = json.loads((tmp_path / "profile" / "kernels.json").read_text())

    assert (found["first_step"], found["last_step"], found["device"]) == (2, 3, "cpu")
    calls = {one["name"]: one["calls"] for one in found["operations"]}
    assert calls["aten::lerp_"] == len(list(Net().parameters())), "not the calls of one step"
    parts = found["parts_s"]
    assert 0 < parts["compute"] + parts["memory_bound"] + parts["optimizer"] <= found["step_s"]
    assert parts["idle"] is parts["communication"] is None
    assert (tmp_path / "profile" / "trace.json.gz").stat().st_size > 1000
    assert len(told) == 1


def test_a_run_that_ends_early_writes_what_it_saw(tmp_path: Path) -> None:
    told: list[str] = []
    watched(tmp_path, (2, 9), 3, told).close(3)
    found = json.loads((tmp_path / "profile" / "kernels.json").read_text())
    assert (found["first_step"], found["last_step"], len(told)) == (2, 3, 1)


def test_a_trace_that_cannot_be_written_is_said_once_and_ends_nothing(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "profile").write_text("a file where the folder would be")
    watched(tmp_path, (1, 1), 3, told).close(3)
    assert len(told) == 1
    assert "not profiled (FileExistsError" in told[0]


def event(
    name: str,
    device: str = "CPU",
    *,
    parent: Any = None,
    device_us: float = 0.0,
    span: tuple[float, float] = (0, 0),
    is_annotation: bool = False,
) -> Any:
    return SimpleNamespace(
        name=name,
        device_type=f"DeviceType.{device}",
        cpu_parent=parent,
        self_device_time_total=device_us,
        self_cpu_time_total=1e9,
        is_user_annotation=is_annotation,
        time_range=SimpleNamespace(start=span[0], end=span[1]),
    )


def test_kernels_of_a_device_stand_with_what_launched_them() -> None:
    """Events as torch 2.13 gives them on a CUDA device; times in microseconds."""
    step = event("Optimizer.step#AdamW.step", is_annotation=True, device_us=500)
    found = step_times(
        [
            event("aten::mm", device_us=300),
            event("aten::copy_", parent=event("aten::addmm"), device_us=20),
            event("aten::gelu", device_us=80),
            step,
            event("aten::_fused_adamw_", parent=step, device_us=100),
            event("nccl:_all_gather_base", device_us=200),
            event("sm90_xmma_gemm", "CUDA", span=(0, 300)),
            event("elementwise", "CUDA", span=(300, 400)),
            event("ncclDevKernel_AllGather", "CUDA", span=(350, 550)),
            event("multi_tensor_apply", "CUDA", span=(800, 900)),
            event("step", "CUDA", span=(0, 1000), is_annotation=True),
        ],
        steps=2,
        seconds=1000e-6,
        device="cuda",
    )
    assert found["parts_s"] == pytest.approx(
        {
            "compute": 160e-6,
            "memory_bound": 40e-6,
            "optimizer": 50e-6,
            "communication": 100e-6,
            "communication_exposed": 75e-6,
            "idle": 175e-6,
        }
    )
    assert found["step_s"] == pytest.approx(500e-6)
    first = found["operations"][0]
    assert (first["name"], first["part"], first["calls"]) == ("aten::mm", "compute", 0.5)
