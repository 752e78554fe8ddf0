"""What our closed forms say of a rank equals what torch's own FSDP2 and tensor parallelism do.

torch runs a small decoder on a fake process group (tests/support/torch_ranks.py) while the case is
predicted from the Profile of the very same file. Collectives are equal by phase, kind, ranks, whole
buffer and number; state by bytes; the peak to a thousandth.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from torch_ranks import Case, Record, as_argument

from gpuplan.catalog.vocabulary import Precision
from gpuplan.planner.parallelism.rank_parameters import RankUnits, data_layout, rank_units
from gpuplan.planner.parallelism.rank_trace import Split, SplitTrace
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import memory_parts
from gpuplan.planner.predict.setup import wire_bytes
from gpuplan.planner.step.slotted_calls import slotted_calls

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[2] / "support"
MODELS = SUPPORT / "models"
STACK = "torch-eager"
ADAMW_READS = 3
"""How often AdamW's foreach implementation reads a gradient."""
PEAK_ERROR = 0.02
"""Nearly all are within a thousandth. Where sequence parallelism without recompute peaks inside a
block, one whole gradient of the residual stream is missing."""

GPT: dict[str, Any] = {"bias": True}
LLAMA: dict[str, Any] = {"gated": True, "kv_heads": 4}
LAYERS: dict[str, Any] = {"params": {**LLAMA, "layers": 6, "vocab": 512}, "micro_batch": 8}
"""Whose peak lies in a block, not in the loss."""
UNEVEN: dict[str, Any] = {
    "hidden": 384,
    "heads": 6,
    "kv_heads": 6,
    "ffn": 1000,
    "vocab": 4099,
    "bias": True,
}
"""Whose rows are no multiple of the ranks."""
MIXED: dict[str, Any] = {"mixed": True}
PLAIN: dict[str, Any] = {"splits_vocabulary": True}
SEQUENCE: dict[str, Any] = {
    "sequence_parallel": True,
    "splits_vocabulary": True,
    "splits_loss": True,
}

CASES = {
    "fsdp8": Case(data=8, shard=8, params=GPT, **MIXED),
    "fsdp16 uneven": Case(data=16, shard=16, params=UNEVEN, **MIXED),
    "fsdp4 many layers": Case(data=4, shard=4, **LAYERS, **MIXED),
    "fsdp4 bf16": Case(data=4, shard=4, params=LLAMA),
    "fsdp4 recompute": Case(data=4, shard=4, **LAYERS, recompute=True, **MIXED),
    "fsdp4 keep": Case(data=4, shard=4, reshard=False, params=LLAMA, **MIXED),
    "fsdp4 keep many layers": Case(data=4, shard=4, reshard=False, **LAYERS, **MIXED),
    "hsdp2x4": Case(data=8, shard=4, params=LLAMA, **MIXED),
    "tp4 gpt": Case(tensor=4, params=GPT, **PLAIN),
    "tp4 llama": Case(tensor=4, params=LLAMA, **PLAIN),
    "tp2 many layers": Case(tensor=2, **LAYERS, **PLAIN),
    "tp4 recompute": Case(tensor=4, **LAYERS, recompute=True, **PLAIN),
    "tp4.sp gpt": Case(tensor=4, params=GPT, **SEQUENCE),
    "tp4.sp llama": Case(tensor=4, params=LLAMA, **SEQUENCE),
    "tp4.sp many layers": Case(tensor=4, **LAYERS, **SEQUENCE),
    "tp4.sp recompute": Case(tensor=4, **LAYERS, recompute=True, **SEQUENCE),
    "fsdp4.tp2": Case(data=4, shard=4, tensor=2, params=GPT, **MIXED, **PLAIN),
    "fsdp4.tp2 uneven": Case(data=4, shard=4, tensor=2, params=UNEVEN, **MIXED, **PLAIN),
    "fsdp4.tp2.sp gpt": Case(data=4, shard=4, tensor=2, params=GPT, **MIXED, **SEQUENCE),
    "fsdp8.tp2.sp llama": Case(data=8, shard=8, tensor=2, params=LLAMA, **MIXED, **SEQUENCE),
    "fsdp4.tp4.sp many layers": Case(data=4, shard=4, tensor=4, **LAYERS, **MIXED, **SEQUENCE),
    "fsdp4.tp4.sp recompute": Case(
        data=4, shard=4, tensor=4, **LAYERS, recompute=True, **MIXED, **SEQUENCE
    ),
    "fsdp4.tp4.sp keep": Case(
        data=4, shard=4, tensor=4, reshard=False, params=LLAMA, **MIXED, **SEQUENCE
    ),
    "hsdp2x4.tp2": Case(data=8, shard=4, tensor=2, params=LLAMA, **MIXED, **PLAIN),
    "hsdp2x4.tp2.sp": Case(data=8, shard=4, tensor=2, params=LLAMA, **MIXED, **SEQUENCE),
}
REPEATED = {
    "fsdp8",
    "fsdp4 many layers",
    "fsdp4 keep",
    "hsdp2x4",
    "tp4 llama",
    "tp2 many layers",
    "tp4 recompute",
    "tp4.sp gpt",
    "tp4.sp many layers",
    "tp4.sp recompute",
    "fsdp4.tp2",
    "fsdp4.tp2.sp gpt",
    "fsdp8.tp2.sp llama",
    "fsdp4.tp4.sp many layers",
    "fsdp4.tp4.sp keep",
    "hsdp2x4.tp2",
}
"""Cases whose model, layout and switches are all in others, in other combinations."""
each_case = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.repeats if name in REPEATED else ()) for name in CASES],
)


@pytest.fixture(scope="module")
def traced(request: pytest.FixtureRequest) -> dict[str, Record]:
    """Return what torch does in every case that is asked for, from a process of its own."""
    here = [one for one in request.session.items if one.path == request.path]
    asked = {one.callspec.params["name"] for one in here if isinstance(one, pytest.Function)}
    cases = {name: case for name, case in CASES.items() if name in asked}
    command = [sys.executable, "-W", "ignore", str(SUPPORT / "torch_ranks.py"), as_argument(cases)]
    finds = {**os.environ, "PYTHONPATH": str(MODELS)}
    ran = subprocess.run(command, env=finds, capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)


class Predicted:
    """Ours of one case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.cache = model_cache(json.dumps(case.params))
        self.layout = Layout(
            data=case.data,
            shard=case.shard,
            zero_stage=0 if case.data == 1 else 3 if case.reshard else 2,
            tensor=case.tensor,
            sequence_parallel=case.sequence_parallel,
        )
        self.precision: Precision = "bf16-amp" if case.mixed else "bf16"
        self.split = Split.of(self.layout, STACK)

    @property
    def share(self) -> SplitTrace:
        recompute = "full" if self.case.recompute else "none"
        return self.cache.steps.split_in("pure16", recompute, self.split)

    @property
    def units(self) -> RankUnits:
        (units,) = rank_units(
            self.cache.profile,
            self.cache.steps.units_in(STACK),
            self.cache.steps.trace_in("pure16", "none"),
            self.layout,
            self.split,
        )
        return units

    @property
    def state_bytes(self) -> int:
        """Return bytes of the rank's parameters, padded as they are stored."""
        elements = sum(
            unit.count * unit.padded(self.case.shard) // self.case.shard
            for unit in self.units.dense
        )
        return elements * (4 if self.case.mixed else 2)

    def calls(self) -> Counter:
        """Return the collectives of one micro-batch by phase, kind, ranks and bytes."""
        found: Counter = Counter()
        for index in self.share.trace.schedule:
            phase = self.share.trace.segments[index].phase
            phase = "backward" if phase == "recompute" else phase
            for one in self.share.exchanges[index]:
                size = one.total_bytes.at(self.case.micro_batch)
                found[phase, one.kind, self.case.tensor, size] += one.count
        wire = wire_bytes(self.precision, STACK)
        for call in slotted_calls(self.units.dense, data_layout(self.layout), wire):
            if "bare" in call.slot:
                continue  # A part of the others.
            # What is gathered once a step is gathered in the first forward pass.
            gathers = call.slot in ("forward_s", "first_forward_s", "after_s")
            phase = "forward" if gathers else "backward"
            ranks = self.layout.replicas if call.across_replicas else call.ranks
            found[phase, call.kind, ranks, call.total_bytes] += call.count
        return found

    def memory(self) -> Any:
        """Return memory of the rank."""
        return memory_parts(
            self.cache,
            Setup(
                layout=self.layout,
                precision=self.precision,
                micro_batch=self.case.micro_batch,
                recompute="full" if self.case.recompute else "none",
                stack=STACK,
                autocast=False,
            ),
        )


@cache
def model_cache(params: str) -> ModelCache:
    from gpuplan.profiles.trace.trace import trace_workload
    from gpuplan.profiles.user_model.contract import load_workload
    from gpuplan.profiles.user_model.spec import ModelSpec

    path = MODELS / "split_decoder.py"
    spec = ModelSpec(text=str(path), kind="file", path=path, params=json.loads(params))
    return ModelCache(trace_workload(load_workload(spec), numerics=("amp16", "pure16")))


def calls_of(record: Record) -> Counter:
    """Return torch's collectives by phase, kind, ranks and bytes.

    Where FSDP does not read them first, DTensor leaves gradients of norms as partial sums, and
    reduces them whenever the optimizer reads them; they belong to the backward pass.
    """
    found: Counter = Counter()
    for one in record["collectives"]:
        found[one["phase"], one["kind"], one["ranks"], one["bytes"]] += 1
    for key in [key for key in found if key[0] == "optimizer"]:
        count = found.pop(key)
        assert count % ADAMW_READS == 0
        found["backward", *key[1:]] += count // ADAMW_READS
    return found


@each_case
def test_collectives_are_torch_s(name: str, traced: dict[str, Record]) -> None:
    assert Predicted(CASES[name]).calls() == calls_of(traced[name])


@each_case
def test_state_is_torch_s(name: str, traced: dict[str, Record]) -> None:
    case, ours = CASES[name], Predicted(CASES[name])
    torch_bytes = traced[name]["state_bytes"]
    assert ours.state_bytes == torch_bytes["parameters"]
    assert 2 * ours.state_bytes == torch_bytes["optimizer"]
    assert ours.memory().optimizer_bytes.item() == pytest.approx(torch_bytes["optimizer"], rel=2e-3)
    # A split embedding's gradient is a part of a buffer for the whole vocabulary.
    whole = case.tensor > 1 and case.data == 1
    table = 2 * case.params.get("vocab", 4096) * case.params.get("hidden", 512)
    extra = table * (1 - 1 / case.tensor) if whole else 0
    assert ours.state_bytes + extra == torch_bytes["gradients"]


@each_case
def test_the_peak_is_torch_s(name: str, traced: dict[str, Record]) -> None:
    peak_bytes = max(peak["bytes"] for peak in traced[name]["peaks"].values())
    ours = Predicted(CASES[name]).memory().peak_bytes.item()
    assert ours == pytest.approx(peak_bytes, rel=PEAK_ERROR)
