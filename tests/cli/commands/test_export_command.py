"""`gpuplan export`: the file alone on standard output, notes beside it."""

from pathlib import Path

import pytest
import yaml
from answers import make_plan

from gpuplan.cli.main import run


@pytest.fixture
def plan_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a file that holds a plan."""
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(make_plan().model_dump_json())
    return "plan.json"


def test_the_file_is_printed_and_the_notes_are_not_in_it(plan_file: str, capsys) -> None:
    assert run(["export", plan_file, "--to", "accelerate"]) == 0
    captured = capsys.readouterr()
    assert yaml.safe_load(captured.out)["distributed_type"] == "FSDP"
    assert "Note: start it with:" in captured.err


def test_it_is_written_on_request(plan_file: str, capsys) -> None:
    words = ["export", plan_file, "--to", "torchrun", "-o", "run.sh", "-q"]
    assert run([*words, "--command", "-m pkg.train --lr 3e-4"]) == 0
    assert "--module pkg.train --lr 3e-4" in Path("run.sh").read_text()
    assert capsys.readouterr() == ("", "")


def test_a_refusal_is_a_usage_error(tmp_path: Path, plan_file: str, capsys) -> None:
    Path(plan_file).write_text(make_plan(layout="dp4.pp2").model_dump_json())
    assert run(["export", plan_file, "--to", "accelerate"]) == 2
    assert "--to skypilot, torchrun, deepspeed" in capsys.readouterr().err


def test_a_plan_that_is_not_there_is_one_clear_message(plan_file: str, capsys) -> None:
    assert run(["export", "none.json", "--to", "torchrun"]) == 2
    assert "To fix:" in capsys.readouterr().err
