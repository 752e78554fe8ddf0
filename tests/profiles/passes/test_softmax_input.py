"""What softmax of torch before 1.11 saves: its input, as large as its result."""

from typing import Any

import pytest

from gpuplan.profiles.analysis.replay import replay
from gpuplan.profiles.passes.softmax_input import with_softmax_inputs
from gpuplan.profiles.trace.trace import trace_workload

BERT = {"layers": 2, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 100, "seq_len": 128}
SCORES = BERT["heads"] * BERT["seq_len"] ** 2 * 4
"""Bytes of the scores of one layer and sample in fp32."""


@pytest.mark.parametrize(("attention", "softmaxes"), [("eager", 2), ("fused", 0)])
def test_scores_that_are_written_out_count_twice(
    example_workload: Any, attention: str, softmaxes: int
) -> None:
    workload = example_workload("bert", **BERT, attention=attention)
    step = trace_workload(workload, numerics=["fp32"]).step("fp32")
    kept = with_softmax_inputs(step)
    more = replay(kept, 8).peak_allocated_bytes - replay(step, 8).peak_allocated_bytes
    logits = BERT["seq_len"] * BERT["vocab"] * 4
    expected = 8 * (softmaxes * SCORES + logits)
    assert more == pytest.approx(expected, rel=0.1)
