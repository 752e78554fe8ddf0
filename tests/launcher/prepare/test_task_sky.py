"""The real SkyPilot reads every task, where it is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
GOLDEN = sorted((HERE / "golden").glob("task-*.yaml"))
READER = HERE.parents[1] / "support" / "sky_tasks.py"
EXPECTED = {
    "aws": {
        "nodes": 2,
        "spot": True,
        "instance_type": "p4d.24xlarge",
        "clouds": ["AWS"],
        "folders": {"/data": "train", "/outputs": None},
    },
    "azure": {"nodes": 1, "instance_type": "Standard_ND96asr_v4", "clouds": ["Azure"]},
    "gcp": {"nodes": 1, "instance_type": "n1-standard-16", "accelerators": {"T4": 2}},
    "kubernetes": {"nodes": 1, "accelerators": {"H100": 8}, "clouds": ["Kubernetes"]},
    "slurm": {"nodes": 2, "accelerators": {"H200": 8}, "clouds": ["Slurm"]},
    "ssh": {"nodes": 1, "accelerators": {"RTX4090": 2}, "clouds": ["SSH"]},
    "tpu": {"nodes": 1, "accelerators": {"tpu-v5litepod-8": 1}, "clouds": ["GCP"]},
}


def read_by_skypilot(home: Path, paths: list[Path]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(READER), str(home), *map(str, paths)],
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.slow
def test_skypilot_accepts_each_task(tmp_path: Path, require) -> None:
    require("skypilot", "it reads the tasks")
    names = [path.stem.removeprefix("task-") for path in GOLDEN]
    assert set(names) == {*EXPECTED, "deadline"}
    first, second = read_by_skypilot(tmp_path / "two", [HERE / "golden" / "task-deadline.yaml"])
    assert (first["spot"], second["spot"]) == (True, False)
    assert [task["envs"]["GPUPLAN_STAGE"] for task in (first, second)] == ["spot", "on-demand"]
    single = [path for path in GOLDEN if path.stem != "task-deadline"]
    names = [path.stem.removeprefix("task-") for path in single]
    tasks = read_by_skypilot(tmp_path, single)
    for name, task in zip(names, tasks, strict=True):
        assert {key: task[key] for key in EXPECTED[name]} == EXPECTED[name], name
        assert task["name"].startswith("gp-")
        assert task["run"] and task["setup"]


@pytest.mark.slow
def test_skypilot_accepts_an_exported_task(tmp_path: Path, require) -> None:
    require("skypilot", "it reads the task")
    (task,) = read_by_skypilot(tmp_path, [HERE / "golden" / "export-skypilot.yaml"])
    assert task["nodes"] == 2
    assert task["instance_type"] == "p4d.24xlarge"
    assert task["clouds"] == ["AWS"]
