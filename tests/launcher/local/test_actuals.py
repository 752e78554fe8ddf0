"""Predicted beside measured: which parts are compared, and what stays unknown."""

import json
from pathlib import Path
from typing import Any

import pytest
from answers import make_plan

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.units import GIB
from gpuplan.cli.main import run
from gpuplan.launcher.local.actuals import Actuals, ActualsRow, actuals, compare
from gpuplan.planner.predict.interval import memory_interval


def record(**changes: Any) -> dict[str, Any]:
    return {
        "id": "net-1",
        "model_name": "net",
        "accelerator": "NVIDIA A100-SXM4-40GB",
        "accelerators": 8,
        "plan": make_plan().id,
        "steps": 30,
        "measured": {"step_time_s": 0.4},
        "measured_parts_s": {
            "input": 0.004,
            "forward": 0.12,
            "backward": 0.256,
            "optimizer": 0.02,
            "checkpoint": 0.5,
        },
        "measured_peak_reserved_bytes": 28.0 * GIB,
        "measured_peak_allocated_bytes": 25.0 * GIB,
        **changes,
    }


def rows(answer: Actuals) -> dict[str, ActualsRow]:
    return {row.name: row for row in answer.rows}


def test_the_step_is_compared_with_its_interval() -> None:
    step = rows(compare(record(), make_plan()))["step time"]
    assert (step.predicted, step.low, step.high, step.measured) == (0.412, 0.374, 0.451, 0.4)
    assert step.error == pytest.approx(0.03)
    assert step.inside is True
    slow = rows(compare(record(measured={"step_time_s": 0.5}), make_plan()))["step time"]
    assert slow.inside is False


def test_what_is_between_data_and_optimizer_is_compared_as_one() -> None:
    passes = rows(compare(record(), make_plan()))["forward and backward"]
    assert passes.predicted == pytest.approx(0.251 + 0.094 + 0.012 + 0.034)
    assert passes.measured == pytest.approx(0.376)
    assert passes.inside is None


def test_what_is_held_outside_the_allocator_makes_its_interval_no_wider() -> None:
    """As of a tiny model, whose interval began at -427,871,655 B: 30 % of a CUDA context below."""
    allocated, framework = 12e6, 1.1e9
    peak = memory_interval(allocated, framework, capacity_bytes=4e10, stack="torch-eager")
    assert peak.high - peak.value > 20 * allocated
    plan = make_plan()
    parts = plan.memory_breakdown_bytes.model_copy(update={"framework": framework})
    tiny = plan.model_copy(update={"peak_memory_bytes": peak, "memory_breakdown_bytes": parts})
    found = rows(compare(record(), tiny))["peak memory, reserved"]
    assert found.predicted == pytest.approx(allocated)
    assert found.low is not None and found.high is not None
    assert 0.9 * allocated < found.low < allocated < found.high < 1.1 * allocated


def test_a_checkpoint_is_no_part_of_a_step() -> None:
    staged = record(measured_parts_s={"forward and backward": 0.3, "checkpoint": 0.5})
    passes = rows(compare(staged, make_plan()))["forward and backward"]
    assert passes.measured == pytest.approx(0.3)


def test_the_memory_is_compared_without_what_is_beside_the_allocator() -> None:
    found = rows(compare(record(), make_plan()))
    reserved = found["peak memory, reserved"]
    assert reserved.predicted == pytest.approx((31.2 - 1.2) * GIB)
    assert reserved.error == pytest.approx(30 / 28 - 1)
    assert reserved.inside is False
    assert found["peak memory, allocated"].predicted is None


def test_unknown_stays_unknown() -> None:
    found = rows(compare(record(), make_plan()))["waiting for input"]
    assert (found.predicted, found.error, found.measured) == (None, None, 0.004)
    bare = compare({"id": None, "measured": {}}, make_plan())
    assert all(row.measured is row.error is row.inside is None for row in bare.rows)


def test_without_a_plan_nothing_is_predicted() -> None:
    answer = compare(record(plan=None), None)
    assert all(row.predicted is None for row in answer.rows)
    assert any("no plan" in note for note in answer.notes)


def test_a_run_on_another_device_says_nothing_of_the_prediction() -> None:
    answer = compare(record(accelerator="cpu"), make_plan())
    assert any("A100-40GB-SXM" in note for note in answer.notes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "plan.json").write_text(make_plan().model_dump_json())
    (tmp_path / "record.json").write_text(json.dumps(record()))
    return tmp_path


def test_a_folder_and_its_record_say_the_same(folder: Path) -> None:
    assert actuals(folder) == actuals(folder / "record.json") == compare(record(), make_plan())


def test_a_plan_of_another_start_is_not_compared_with(folder: Path) -> None:
    (folder / "record.json").write_text(json.dumps(record(plan="0123456789")))
    answer = actuals(folder)
    assert answer.plan is None
    assert any("0123456789" in note for note in answer.notes)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"measured": {"step_time_s": "soon"}}'])
def test_what_is_no_record_is_refused(folder: Path, text: str) -> None:
    (folder / "record.json").write_text(text)
    with pytest.raises(UsageError, match="is not the record of one run"):
        actuals(folder)


def test_a_damaged_plan_is_refused(folder: Path) -> None:
    (folder / "job" / "plan.json").write_text("{}")
    with pytest.raises(UsageError, match="not a plan that this version can read"):
        actuals(folder)


def test_the_command_prints_every_form(folder: Path, capsys) -> None:
    assert run(["actuals", str(folder)]) == 0
    table = capsys.readouterr().out
    assert "412 ms" in table and "+3.0 %" in table and "unknown" in table
    assert run(["actuals", str(folder), "--format", "markdown"]) == 0
    assert "| step time | 412 ms | 374 ms to 451 ms | 400 ms | +3.0 % | yes |" in (
        capsys.readouterr().out
    )
    assert run(["actuals", str(folder), "--format", "json"]) == 0
    assert Actuals.model_validate_json(capsys.readouterr().out) == actuals(folder)


def test_a_folder_without_a_record_is_one_error(tmp_path: Path, capsys) -> None:
    assert run(["actuals", str(tmp_path)]) == 2
    assert "No run record can be read" in capsys.readouterr().err


def profiled(**changes: Any) -> dict[str, Any]:
    parts = {
        "compute": 0.25,
        "memory_bound": 0.1,
        "optimizer": 0.02,
        "communication": 0.09,
        "communication_exposed": 0.04,
        "idle": 0.01,
    }
    return {
        "device": "cuda",
        "first_step": 10,
        "last_step": 12,
        "step_s": 0.43,
        "parts_s": parts,
        **changes,
    }


def test_kernels_of_profiled_steps_stand_beside_the_parts_of_the_plan() -> None:
    plan = make_plan()
    answer = compare(record(), plan, profiled())
    kernels = {name: row for name, row in rows(answer).items() if name.startswith("kernels")}
    parts = plan.breakdown_s
    assert [row.measured for row in kernels.values()] == [0.25, 0.1, 0.02, 0.04, 0.01]
    assert [row.predicted for row in kernels.values()] == pytest.approx(
        [
            parts.compute,
            parts.memory_bound,
            parts.optimizer,
            parts.data_comm_exposed,
            parts.launch + parts.pipeline_bubble,
        ]
    )
    assert "steps 10 to 12" in answer.notes[-1]
    known = sum(row.predicted or 0.0 for row in kernels.values()) + parts.host_comm_exposed
    assert known == pytest.approx(plan.step_time_s.value), "a part of the step is in no row"


def test_a_processor_tells_nothing_of_an_idle_device(tmp_path: Path) -> None:
    unknown = dict.fromkeys(("communication", "communication_exposed", "idle"))
    seen = profiled(device="cpu", parts_s={**profiled()["parts_s"], **unknown})
    names = [name for name in rows(compare(record(), None, seen)) if name.startswith("kernels")]
    assert len(names) == 3
    (tmp_path / "record.json").write_text(json.dumps(record(plan=None)))
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "kernels.json").write_text("{")
    assert not any(row.name.startswith("kernels") for row in actuals(tmp_path).rows)
    (tmp_path / "profile" / "kernels.json").write_text(json.dumps(seen))
    assert any(row.name.startswith("kernels") for row in actuals(tmp_path).rows)
