"""What runs measured, kept and found again: the same workload, the planned accelerator."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.measured_steps import is_on_planned, keep_step, known_runs, workload_key
from gpuplan.profiles.user_model.spec import parse_model_spec

START = datetime(2026, 11, 22, tzinfo=UTC)


def keep(store: Store, run: str, seconds: Any, *, steps: Any = 100, day: int = 0) -> bool:
    return keep_step(
        store,
        {"measured": {"step_time_s": seconds}, "steps": steps},
        run=run,
        workload="w",
        plan_key="p",
        now=lambda: START + timedelta(days=day),
    )


def test_runs_are_found_by_workload_and_plan(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite3")
    assert known_runs(store, "w") == {}
    assert keep(store, "b", 2.5, day=1)
    assert keep(store, "a", 2.0)
    known = known_runs(store, "w")["p"]
    assert (known.times_s, known.run) == ((2.0, 2.5), "b")
    assert known_runs(store, "another") == {}
    keep(store, "a", 3.0, day=2)
    assert known_runs(store, "w")["p"].times_s == (2.5, 3.0)


@pytest.mark.parametrize(
    ("seconds", "steps"), [(None, 100), (0, 100), ("2", 100), (2.0, 3), (2.0, None)]
)
def test_a_record_that_says_no_step_is_not_kept(tmp_path: Path, seconds: Any, steps: Any) -> None:
    store = Store(tmp_path / "store.sqlite3")
    assert not keep(store, "a", seconds, steps=steps)
    torn = {"measured": "2.0", "steps": 100}
    assert not keep_step(store, torn, run="b", workload="w", plan_key="p", now=lambda: START)
    assert known_runs(store, "w") == {}


@pytest.mark.parametrize(
    ("named", "planned", "is_same"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-80GB-SXM", True),
        ("NVIDIA A100-SXM4-80GB", "H100-80GB-SXM", False),
        ("cpu", "CPU-2x-Xeon-8488C", True),
        ("cpu", "A100-80GB-SXM", False),
        ("no such device", "A100-80GB-SXM", False),
    ],
)
def test_a_rehearsal_is_not_a_run_of_the_plan(named: str, planned: str, is_same: bool) -> None:
    assert is_on_planned({"accelerator": named}, planned) is is_same


def test_a_workload_is_its_files_and_params(tmp_path: Path) -> None:
    model = tmp_path / "net.py"
    model.write_text("def build_model(): ...\n")
    first = workload_key(parse_model_spec(str(model), params={"width": 4}))
    assert workload_key(parse_model_spec(str(model), params={"width": 4})) == first
    assert workload_key(parse_model_spec(str(model), params={"width": 8})) != first
    model.write_text("def build_model(): return 1\n")
    assert workload_key(parse_model_spec(str(model), params={"width": 4})) != first
