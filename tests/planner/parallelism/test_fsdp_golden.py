"""The golden files of torch's `fully_shard`: they hold together, and torch still says the same."""

import json
import subprocess
import sys
from collections import Counter
from math import ceil, prod
from pathlib import Path

import pytest
import torch

from gpuplan.examples import decoder

GOLDEN = Path(__file__).parent / "fsdp_golden"
GENERATOR = Path(__file__).parents[3] / "benchmarks" / "trace_fully_shard.py"
FILES = sorted(GOLDEN.glob("*.json"))


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def meta_model(golden: dict) -> torch.nn.Module:
    with torch.device("meta"):
        return decoder.build_model(**golden["params"])


def tensors(golden: dict) -> int:
    return len(list(meta_model(golden).parameters()))


def padded_units(golden: dict) -> list[int]:
    """Return the elements of the root and of each block, each parameter padded to the ranks."""
    units: Counter[str] = Counter()
    for name, parameter in meta_model(golden).named_parameters():
        unit = ".".join(name.split(".")[:2]) if name.startswith("blocks.") else ""
        rows, *rest = parameter.shape
        units[unit] += ceil(rows / golden["shard"]) * golden["shard"] * prod(rest)
    return [units.pop(""), *units.values()]


def gathers(golden: dict, phase: str) -> list[int]:
    return [
        each["out_bytes"]
        for each in golden["collectives"]
        if each["kind"] == "all_gather_into_tensor" and each["phase"] == phase
    ]


def test_there_are_cases_at_16_and_64_ranks() -> None:
    ranks = Counter(read(path)["ranks"] for path in FILES)
    assert ranks[16] >= 12
    assert ranks[64] >= 12


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_collectives_are_one_per_padded_unit(path: Path) -> None:
    golden = read(path)
    root, *blocks = padded_units(golden)
    width = {"bfloat16": 2, "float32": 4}[golden["param_dtype"]]
    times, frees = golden["grad_accum"], golden["reshard_after_forward"]
    regathered = blocks[::-1] if frees else []
    reduced = [
        each["in_bytes"]
        for each in golden["collectives"]
        if each["kind"] == "reduce_scatter_tensor"
    ]
    # What is not freed is gathered once a step, however many micro-batches it has.
    gathered = (times if frees else 1) * [width * n for n in (root, *blocks)]
    assert gathers(golden, "forward") == gathered
    assert gathers(golden, "backward") == times * [width * n for n in regathered]
    assert reduced == times * [4 * n for n in (*blocks[::-1], root)]
    for each in golden["collectives"]:
        small, large = sorted((each["in_bytes"], each["out_bytes"]))
        assert large == small * (1 if each["kind"] == "all_reduce" else golden["shard"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_memory_adds_up(path: Path) -> None:
    golden = read(path)
    persistent = golden["persistent_bytes"]
    elements = sum(padded_units(golden))
    assert golden["peak"]["bytes"] == sum(golden["peak"]["by_category_bytes"].values())
    assert persistent["parameters"] == persistent["gradients"] == 4 * elements // golden["shard"]
    step_counters = persistent["optimizer"] - 2 * persistent["parameters"]
    assert step_counters == 4 * tensors(golden)
    for peak in (golden["peak"], golden["sharding_buffers_peak"]):
        held = peak["by_category_bytes"]
        assert held["parameters"] == persistent["parameters"]
        assert held["optimizer"] == persistent["optimizer"]
        if golden["grad_accum"] == 1:
            assert held.get("gradients", 0) < persistent["gradients"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "gpt2-16-bf16-keep-3-times",
        pytest.param("gpt2-16-bf16-reshard", marks=pytest.mark.repeats),
        pytest.param("gpt2-64-fp32-keep", marks=pytest.mark.repeats),
    ],
)
def test_torch_still_traces_the_same(case: str, tmp_path: Path) -> None:
    command = [sys.executable, str(GENERATOR), case, "--out-dir", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    now, golden = read(tmp_path / f"{case}.json"), read(GOLDEN / f"{case}.json")
    del now["torch"], golden["torch"]
    assert now == golden
