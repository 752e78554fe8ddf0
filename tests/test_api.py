"""The public surface: its names are frozen, and importing it stays cheap."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpuplan
from gpuplan import api

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_the_public_names_are_these() -> None:
    assert api.__all__ == sorted(api.__all__)
    assert set(api.__all__) == {
        "BillingImport",
        "BudgetReport",
        "Choices",
        "Difference",
        "Estimate",
        "GpuplanError",
        "Inputs",
        "Layout",
        "Machine",
        "ModelSpec",
        "Money",
        "Plan",
        "Profile",
        "Project",
        "Question",
        "Sweep",
        "Work",
        "actuals",
        "advise",
        "by_capacity",
        "calibrate",
        "calibrate_from_store",
        "capacity",
        "capacity_over_time",
        "check",
        "check_curves",
        "diff",
        "doctor",
        "estimate",
        "export",
        "export_prices",
        "export_weights",
        "fits",
        "frontier",
        "gpu",
        "gpus",
        "import_actuals",
        "init",
        "init_project",
        "keep",
        "kept_estimates",
        "kept_plan",
        "kept_reports",
        "launch",
        "launches",
        "measure",
        "model",
        "next_plan",
        "offers",
        "parse_layout",
        "prices",
        "profile",
        "read_inputs",
        "read_project",
        "refuse_without_capacity",
        "report",
        "report_of_plans",
        "run",
        "run_script",
        "sources",
        "step_summary",
        "sweep",
        "timeline",
        "validate",
    }


def test_every_public_name_is_there_from_the_package_too() -> None:
    for name in api.__all__:
        assert getattr(gpuplan, name) is getattr(api, name)


def test_importing_it_brings_in_nothing_heavy() -> None:
    heavy = "torch", "numpy", "sqlalchemy", "rich"
    code = f"import sys, gpuplan.api; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_explained() -> None:
    assert set(re.findall(r"`(\w+)`", PAGE)) >= set(api.__all__)


@pytest.mark.slow
def test_the_examples_of_the_page_run(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/api.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert "A100" in printed[0]
    assert printed[-3].startswith("1 True")


def test_another_thing_than_a_question_is_refused_by_its_name() -> None:
    with pytest.raises(api.GpuplanError, match=r"question=Work.* is not a Question"):
        api.estimate("no.py", api.Work(tokens=1e9))  # pyright: ignore[reportArgumentType]
    with pytest.raises(api.GpuplanError, match="today='H100:8' is no setting"):
        api.advise("no.py", "H100:8")  # pyright: ignore[reportArgumentType]
