"""Regret: what it costs to take the setup that is predicted to be fastest, on made-up sweeps."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.api.validation import RecordedRuns
from gpuplan.planner.plan.plan import Estimated
from gpuplan.planner.validation.errors import Observation
from gpuplan.profiles.records import RunRecord

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # As `make accuracy` runs.
regret = importlib.import_module("evaluation.layouts.regret")
regret_part = importlib.import_module("evaluation.layouts.regret_part")

SECONDS = st.floats(1e-3, 1e4)
TIMES = st.lists(st.tuples(SECONDS, SECONDS), min_size=3, max_size=12)
"""(measured, predicted) of every setup."""


def sweep_of(times: list[tuple[float, float]]) -> Any:
    tried = tuple(
        regret.Tried(id=f"run {i}", name=f"dp{i}", measured_s=measured, predicted_s=predicted)
        for i, (measured, predicted) in enumerate(times)
    )
    return regret.Sweep(source="made up", question="a model", tried=tried)


@given(TIMES, st.integers(1, 12))
def test_regret_is_never_negative_and_falls_with_what_is_tried(
    times: list[tuple[float, float]], length: int
) -> None:
    sweep = sweep_of(times)
    assert 0 <= sweep.regret(length + 1) <= sweep.regret(length)
    assert sweep.regret(len(times)) == 0


@given(TIMES)
def test_predictions_in_the_measured_order_have_no_regret(times: list[tuple[float, float]]) -> None:
    ordered = zip(
        sorted(measured for measured, _ in times),
        sorted(predicted for _, predicted in times),
        strict=True,
    )
    # Equal predictions of different times are in no order: each is moved a little.
    sweep = sweep_of([(measured, predicted + i) for i, (measured, predicted) in enumerate(ordered)])
    assert sweep.regret() == 0


@given(TIMES, st.integers(-8, 8))
def test_an_error_that_all_setups_share_changes_nothing(
    times: list[tuple[float, float]], power: int
) -> None:
    scaled = [(measured, predicted * 2.0**power) for measured, predicted in times]
    for length in (1, 3):
        assert sweep_of(scaled).regret(length) == sweep_of(times).regret(length)


@given(TIMES, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_changes_nothing(times: list[tuple[float, float]], any_: Any) -> None:
    shuffled = any_.sample(times, len(times))
    assert sweep_of(shuffled).regret() == sweep_of(times).regret()


def test_of_equal_predictions_the_slower_setup_counts() -> None:
    sweep = sweep_of([(1.0, 5.0), (1.5, 5.0), (3.0, 9.0)])
    assert sweep.regret() == pytest.approx(0.5)
    assert sweep.regret(2) == 0
    assert sweep.regret_at_random == pytest.approx(5.5 / 3 - 1)


SMALL = {
    **{"layers": 2, "hidden": 256, "heads": 4, "kv_heads": 4, "ffn": 1024, "ffn_kind": "gelu"},
    **{"vocab": 1000, "seq_len": 128},
}


def record(name: str, tensor: int, **fields: Any) -> RunRecord:
    usual = {
        "source_group": "lab",
        "model": "decoder.py",
        "params": {"layers": 2},
        "accelerator": "L4",
        "accelerators": 8,
        "global_batch": 64,
        "micro_batch": 1,
        "layout": {"data": 8 // tensor, "tensor": tensor},
        "measured": {"step_time_s": 1.0},
    }
    return RunRecord.model_validate({"id": name, **usual, **fields})


def observation(name: str, measured_s: float, predicted_s: float | None) -> Observation:
    predicted = None
    if predicted_s is not None:
        ends = predicted_s / 1.2, predicted_s * 1.2
        predicted = Estimated(value=predicted_s, low=ends[0], high=ends[1], basis="analytic")
    return Observation(
        id=name,
        source_group="lab",
        accelerator="L4",
        stack="megatron",
        configuration=name,
        measured_step_time_s=measured_s,
        predicted_step_time_s=predicted,
    )


RECORDS = [record("a", 1), record("b", 2), record("c", 4), record("d", 8)]
SEEN = [
    observation("a", 1.0, 3.0),
    observation("b", 1.1, 2.0),
    observation("c", 2.0, 4.0),
    observation("d", 3.0, 5.0),
]


def test_a_sweep_is_one_question_answered_in_several_setups() -> None:
    others = [
        record("bf16", 1, precision="bf16"),
        record("batch", 2, global_batch=32),
        record("wide", 4, params={"layers": 4}),
        record("unstated", 8, global_batch=None),
        record("unpredicted", 1, micro_batch=2),
    ]
    seen = [observation(one.id, 0.1, 0.1) for one in others[:-1]]
    seen.append(observation("unpredicted", 0.1, None))
    (sweep,) = regret.find_sweeps([*RECORDS, *others], [*SEEN, *seen])
    assert [one.id for one in sweep.tried] == ["a", "b", "c", "d"]
    assert sweep.regret() == pytest.approx(0.1)
    assert sweep.regret(3) == 0


def test_what_was_measured_repeatedly_is_one_setup() -> None:
    again = record("a again", 1)
    runs = [*RECORDS[:2], again], [*SEEN[:2], observation("a again", 3.0, 3.0)]
    assert regret.find_sweeps(*runs) == []
    (sweep,) = regret.find_sweeps([*runs[0], RECORDS[2]], [*runs[1], SEEN[2]])
    assert [one.measured_s for one in sweep.tried] == [2.0, 1.1, 2.0]


def test_a_sweep_as_short_as_the_short_list_says_nothing_about_it() -> None:
    (row,) = regret.regret_by_source(regret.find_sweeps(RECORDS[:3], SEEN[:3]))
    assert row.short_list_mean is None
    (row,) = regret.regret_by_source(regret.find_sweeps(RECORDS, SEEN))
    assert (row.n, row.short_list_mean) == (1, 0)


def test_the_page_says_what_was_chosen_and_which_targets_are_missed() -> None:
    sweeps = regret.find_sweeps(RECORDS, SEEN)
    moved = [sweeps[0].with_predictions({"a": 1.0})]
    text = regret_part.regret_part(sweeps, {0.5: moved, 1.0: sweeps})
    assert "mean at most 3 % (missed by lab); worst at most 20 % (met)" in text
    assert "| lab | 1 | 10.0 % | **no** | 10.0 % | yes | 0.0 % | yes | 77.5 % |" in text
    assert "dp4.tp2, micro-batch 1 (b): 1.10 s, predicted 2.00 s" in text
    assert "Choices that change, of 1: 1 at × 0.5." in text
    assert "| lab | 1 | 0.0 % | 10.0 % |" in text
    assert regret_part.regret_part([]) == ""


@pytest.mark.slow
def test_sweeps_on_several_nodes_are_predicted_for_other_networks(tmp_path: Path) -> None:
    common = {"params": SMALL, "accelerator": "A100-80GB-SXM", "per_node": 8, "precision": "bf16"}
    common |= {"stack": "torch-eager", "optimizer": "adamw", "recompute": "none"}
    common |= {"inter_node_gbit_s": 100}
    nodes = {"accelerators": 16, "layout": {"data": 16}}
    batches = ((1, 4), (2, 2), (4, 1))
    on_nodes = [
        record(f"{micro}", 1, micro_batch=micro, grad_accum=steps, **common, **nodes)
        for micro, steps in batches
    ]
    in_one = [
        record(f"{micro} in one", 1, micro_batch=micro, grad_accum=2 * steps, **common)
        for micro, steps in batches
    ]
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(one.model_dump_json() for one in (*on_nodes, *in_one)))
    runs = RecordedRuns([path])
    sweeps = regret.find_sweeps(runs.records, runs.observations("configuration"))
    assert len(sweeps) == 2
    found = regret.on_other_networks(runs, sweeps, "configuration")
    assert list(found) == [0.5, 1.0, 2.0]
    (slow,), (usual,), (fast,) = found.values()
    assert [one.id for one in usual.tried] == [one.id for one in on_nodes]
    for one, other in zip(usual.tried, sweeps[0].tried, strict=True):
        assert one.predicted_s == pytest.approx(other.predicted_s)
    for slower, faster in ((slow, usual), (usual, fast)):
        for one, other in zip(slower.tried, faster.tried, strict=True):
            assert one.predicted_s > other.predicted_s
