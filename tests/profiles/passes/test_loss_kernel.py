"""A cross-entropy that is one kernel a pass moves the 16-bit logits, and nothing else as large."""

from typing import Any

import pytest

from gpuplan.profiles.passes.loss_kernel import with_loss_kernel
from gpuplan.profiles.profile import StepTrace
from gpuplan.profiles.trace.trace import trace_workload

GPT2 = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 1000, "seq_len": 128}
LOGITS = GPT2["vocab"] * GPT2["seq_len"]


def moved(step: StepTrace, op: str) -> tuple[float, float]:
    """Return bytes that a kernel reads and writes for a sample."""
    (kernel,) = [one for segment in step.segments for one in segment.kernels if one.op == op]
    return kernel.bytes_read.at(1), kernel.bytes_written.at(1)


def ops(step: StepTrace) -> list[str]:
    return [kernel.op for segment in step.segments for kernel in segment.kernels]


@pytest.mark.parametrize(("numerics", "width"), [("amp16", 2), ("fp32", 4)])
def test_each_pass_moves_logits_once(example_workload: Any, numerics: Any, width: int) -> None:
    workload = example_workload("gpt2", **GPT2)
    plain = trace_workload(workload, numerics=[numerics]).step(numerics)
    step = with_loss_kernel(plain)
    assert moved(step, "_log_softmax") == (width * LOGITS, 0)
    assert moved(step, "_log_softmax_backward_data") == (width * LOGITS, width * LOGITS)
    assert not {"nll_loss_forward", "nll_loss_backward"} & {*ops(step)}
    casts = 2 if width == 2 else 0
    assert len(ops(plain)) - len(ops(step)) == 2 + casts
    for segment in step.segments:
        assert len(segment.offsets) == len(segment.kernels)


def test_a_step_without_cross_entropy_stays_as_it_is(example_workload: Any) -> None:
    workload = example_workload("dlrm", rows=(1000, 1000))
    step = trace_workload(workload, numerics=["fp32"]).step("fp32")
    assert with_loss_kernel(step) == step
