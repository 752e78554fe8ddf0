"""Jobs and plans are read exactly or refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from runner_jobs import make_job, plan_of

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.runner.job import execution_of, read_job


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text("def build_model(): ...\n")
    plan = plan_of({"data": 2, "shard": 2, "zero_stage": 3}, id="abc")
    return make_job(tmp_path, tmp_path / "net.py", plan=plan, params={"layers": 2}, seed=7)


def test_what_is_written_is_read(folder: Path, tmp_path: Path) -> None:
    job = read_job(folder)

    assert job.spec.params == {"layers": 2} and job.spec.path == tmp_path / "net.py"
    assert job.execution is not None and job.execution.layout.shard == 2
    assert job.execution.global_batch == 4
    assert (job.seed, job.out_dir, (job.plan or {})["id"]) == (7, tmp_path, "abc")


@pytest.mark.parametrize("text", ["", "[]", "{", "{}", '{"spec": 3}'])
def test_a_broken_job_is_one_clear_error(folder: Path, text: str) -> None:
    (folder / "job.json").write_text(text)

    with pytest.raises(UsageError, match="job.json"):
        read_job(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"layout": None},
        {"layout": []},
        {"micro_batch": 0},
        {"micro_batch": "2"},
        {"grad_accum": True},
    ],
)
def test_a_malformed_plan_is_one_clear_error(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="plan"):
        execution_of({**plan_of(), **change})


@pytest.mark.parametrize("name", ["layout", "precision", "micro_batch", "recompute", "stack"])
def test_what_a_plan_lacks_is_named(name: str) -> None:
    plan = plan_of()
    del plan[name]

    with pytest.raises(UsageError, match=name):
        execution_of(plan)


def test_unknown_fields_of_a_job_are_ignored(folder: Path) -> None:
    values = json.loads((folder / "job.json").read_text())
    (folder / "job.json").write_text(json.dumps({**values, "from_the_future": 1}))

    assert read_job(folder).seed == 7
