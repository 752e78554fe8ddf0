"""FSDP beside pipeline stages holds and sends what traces of torch's own show."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuplan.planner.memory.rank_memory import RankMemory
from gpuplan.planner.memory.stages.memory import checked_stages, stage_memories, stage_units
from gpuplan.planner.memory.stages.sent import sent_bytes
from gpuplan.planner.memory.stages.whole import gathered_bytes, gradient_share
from gpuplan.planner.parallelism.fsdp import REDUCE_BYTES, units_of
from gpuplan.planner.parallelism.rank_parameters import RankUnits, rank_units
from gpuplan.planner.parallelism.rank_trace import Split, split_trace
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.setup import wire_bytes
from gpuplan.planner.software.state_bytes import state_scale
from gpuplan.planner.step.slotted_calls import slotted_calls
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

ROOT = Path(__file__).parents[4]
GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("*.json"))


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def layout_of(golden: dict[str, Any]) -> Layout:
    shard, pipeline, virtual = (golden[n] for n in ("shard", "pipeline", "virtual_stages"))
    return Layout(data=shard, shard=shard, zero_stage=3, pipeline=pipeline, virtual_stages=virtual)


@pytest.fixture(scope="module")
def decoder() -> Profile:
    spec = parse_model_spec(str(ROOT / "examples" / "decoder.py"), params=read(FILES[0])["params"])
    return make_profile(spec, numerics=("pure16",))


def stage_of(decoder: Profile, golden: dict[str, Any]) -> tuple[RankMemory, RankUnits]:
    """Return what is predicted of the stage of a golden file, and its units."""
    layout, cache = layout_of(golden), ModelCache(decoder)
    trace = cache.steps.trace_in("pure16", "none")
    units = rank_units(decoder, units_of(decoder), trace, layout, Split())
    memories = stage_memories(
        split_trace(trace, Split()),
        decoder,
        units,
        layout,
        micro_batches=np.array([1.0]),
        compute_bytes=2,
        grad_accum=golden["micro_batches"],
        state=state_scale("bf16-amp", "torch-eager", sixteen_bit_layers=True),
    )
    at = checked_stages(layout).index(golden["stage"])
    return memories[at], units[golden["stage"]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_stage_holds_its_parameters_and_gradients_whole(path: Path, decoder: Profile) -> None:
    golden = read(path)
    traced = golden["peak"]["by_category_bytes"]
    memory, rank = stage_of(decoder, golden)
    units = stage_units(rank, tuple(group.name for group in decoder.blocks))
    share = gradient_share(rank, layout_of(golden), golden["micro_batches"])
    assert gathered_bytes(units, golden["shard"], 2) == traced["unsharded_parameters"]
    assert REDUCE_BYTES * rank.trainable * share == traced["unsharded_gradients"]
    assert memory.gradients_bytes[0] == pytest.approx(traced["unsharded_gradients"], rel=1e-6)
    shards = traced["parameters"] + traced["unsharded_parameters"]
    made = 2 * max(unit.trainable for unit in units)
    assert shards <= memory.parameters_bytes[0] * (1 + 1e-6) <= shards + made


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_peak_of_a_stage_is_near_that_of_a_trace(path: Path, decoder: Profile) -> None:
    """torch's CPU kernels keep more for the backward pass than a device's (its norms in parts)."""
    golden = read(path)
    memory, _ = stage_of(decoder, golden)
    assert 0.88 < memory.peak_bytes[0] / golden["peak"]["bytes"] <= 1.0


def test_more_micro_batches_than_stages_hold_no_more() -> None:
    """What a stage received is dropped with the micro-batch (`ReceivingStage`)."""
    few, many = (read(GOLDEN / f"stage1of4-{n}.json")["peak"] for n in (8, 32))
    without_inputs = [one["bytes"] - one["by_category_bytes"]["inputs"] for one in (few, many)]
    assert without_inputs[0] == without_inputs[1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_stage_gathers_and_reduces_once_a_step(path: Path, decoder: Profile) -> None:
    golden = read(path)
    _, rank = stage_of(decoder, golden)
    data = Layout(data=4, shard=4, zero_stage=3, pipeline=2)
    calls = slotted_calls(rank.dense, data, wire_bytes("bf16-amp", "torch-eager"))
    reduced = [one for one in calls if one.kind == "reduce_scatter"]
    traced = golden["collectives"]
    for kind, name in (
        ("all_gather", "all_gather_into_tensor"),
        ("reduce_scatter", "reduce_scatter_tensor"),
    ):
        # What nothing hides is listed among all of them too.
        sent = {(one.total_bytes, one.count) for one in calls if one.kind == kind}
        assert sum(count for size, count in sent if size) == traced[name]
    assert {one.slot for one in reduced} == {"last_backward_s", "last_backward_bare_s"}
    assert {one.slot for one in calls if one.kind == "all_gather"} <= {"first_forward_s", "after_s"}


def test_other_software_gathers_in_every_micro_batch(decoder: Profile) -> None:
    data = Layout(data=4, shard=4, zero_stage=3, pipeline=2)
    calls = slotted_calls(units_of(decoder), data, wire_bytes("bf16-amp", "xla"))
    assert {one.slot for one in calls} >= {"forward_s", "backward_s"}


def test_only_interleaved_stages_keep_what_they_sent() -> None:
    assert sent_bytes(100.0, 1.0, 8.0) == 0
    assert sent_bytes(100.0, 2.0, 8.0) == 2 * 2 * 8 * 100


@pytest.mark.slow
@pytest.mark.parametrize(
    # With many micro-batches what is not dropped with its own would be seen best.
    "case",
    ["stage1of4-8", pytest.param("stage1of4-32", marks=pytest.mark.repeats)],
)
def test_torch_still_traces_the_same(case: str, tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "trace_pipeline_stages.py"
    command = [sys.executable, str(script), case, "--out-dir", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    now, golden = read(tmp_path / f"{case}.json"), read(GOLDEN / f"{case}.json")
    del now["torch"], golden["torch"]
    assert now == golden
