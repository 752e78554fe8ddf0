"""`gpuplan launch --replan`: the question of a kept estimate, asked again as it was asked."""

from pathlib import Path

import pytest

from gpuplan.api import launch_plan
from gpuplan.catalog.errors import UsageError
from gpuplan.cli.main import run
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.origin import origin_of
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Question
from gpuplan.profiles.curves.choice import CurveChoice
from gpuplan.profiles.user_model.spec import parse_model_spec


def test_a_question_that_is_asked_again_rests_on_the_same_measurements(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    kept = Store().newest_of(Path.cwd())
    assert kept is not None
    spec = parse_model_spec("net.py", params={"width": 4})
    choice = CurveChoice(given=(Path("mine.json"),), left_out=frozenset({"L4"}))
    origin = origin_of(spec, Question(), folder=Path.cwd(), offers=None, curve_choice=choice)
    Store().keep(kept.estimate, inputs_hash="own curves", origin=origin)
    asked: dict[str, object] = {}

    def read_inputs(_model: object, **reading: object) -> None:
        asked.update(reading)
        raise UsageError("Enough is known.", fix="none.")

    monkeypatch.setattr(launch_plan, "read_inputs", read_inputs)
    assert run(["launch", plan.id, "--outputs", "s3://results/team", "--replan", "--dryrun"]) == 2
    assert "Enough is known." in capsys.readouterr().err
    assert asked["curves"] == (str(Path("mine.json").absolute()),)
    assert asked["without_curves_of"] == ("L4",)
