"""On how many samples a run is evaluated, as a question is asked."""

from pathlib import Path

import pytest

from gpuplan.api.models.evaluated import with_eval_samples
from gpuplan.catalog.errors import UsageError
from gpuplan.planner.plan.question import Question, Work
from gpuplan.profiles.user_model.spec import parse_model_spec

LINES = Path(__file__).parents[3] / "examples" / "lines.py"


def test_as_many_as_the_file_has_where_nobody_says_how_many() -> None:
    spec = parse_model_spec(str(LINES))
    found, notes = with_eval_samples(Question(work=Work(steps=10, eval_every=5)), spec)
    assert found.work.eval_samples is not None and not notes
    stated = Question(work=Work(steps=10, eval_every=5, eval_samples=7))
    assert with_eval_samples(stated, spec) == (stated, ())


def test_a_question_without_evaluations_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("gpuplan.profiles.measure.eval_samples.count_eval_samples")
    assert with_eval_samples(Question(), parse_model_spec(str(LINES))) == (Question(), ())


def test_where_nobody_knows_them_it_is_said() -> None:
    asked = Question(work=Work(steps=10, eval_every=5))
    found, (note,) = with_eval_samples(asked, None)
    assert found == asked
    assert "not known: there is no file" in note and "--eval-samples" in note


def test_samples_without_how_often_are_refused() -> None:
    with pytest.raises(UsageError, match="not how often"):
        Work(steps=10, eval_samples=7)
