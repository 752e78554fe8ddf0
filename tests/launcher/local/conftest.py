"""A model file, and a run of it made ready on a machine with the named devices."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from answers import make_estimate

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.local import options, run
from gpuplan.launcher.local.run import Prepared, prepare
from gpuplan.launcher.local.run_request import RunRequest
from gpuplan.launcher.runner.job import Job
from gpuplan.launcher.store.sourced_plan import SourcedPlan
from gpuplan.planner.plan.plan import Plan
from gpuplan.profiles.user_model.spec import parse_model_spec


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text("def build_model(): ...\ndef make_batch(batch_size): ...\n")
    return path


@pytest.fixture
def ask(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Prepared]:
    """Return a function that prepares a run on a machine with the named devices."""

    def prepared(
        *,
        plan: Plan | None = None,
        devices: tuple[str, ...] = (),
        cores: int = 64,
        notes: list[str] | None = None,
        **request: Any,
    ) -> Prepared:
        monkeypatch.setattr(run, "device_names", lambda: devices)
        monkeypatch.setattr(options, "core_count", lambda: cores)
        given = None
        if plan is not None:
            given = SourcedPlan(plan=plan, estimate=make_estimate(plan))
        return prepare(
            parse_model_spec(str(model)),
            given,
            RunRequest(**{"out_dir": tmp_path / "out", **request}),
            catalogue=load_catalogue(None),
            now=lambda: datetime(2026, 11, 21, 10, 30),
            on_note=(notes if notes is not None else []).append,
        )

    return prepared


@pytest.fixture
def job(ask, tmp_path: Path) -> Job:
    return ask(steps=30).job
