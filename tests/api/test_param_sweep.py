"""`gpuplan.sweep`: one row for every combination of values, whatever becomes of it."""

from pathlib import Path
from typing import Any

import pytest
from answers import make_plan, make_ranked_estimate

from gpuplan import api
from gpuplan.api import param_sweep
from gpuplan.catalog.errors import UsageError, UserFileError
from gpuplan.planner.plan.answer.estimate import Estimate


class Engine:
    """Stands for tracing and the search: remembers the params, gives a made answer."""

    def __init__(self) -> None:
        self.params: list[dict[str, Any]] = []
        self.answers: dict[int, Estimate] = {}
        self.errors: dict[int, Exception] = {}

    def read_inputs(self, model: str, *, params: dict[str, Any], **_: Any) -> int:
        self.params.append(params)
        if params["layers"] in self.errors:
            raise self.errors[params["layers"]]
        return params["layers"]

    def estimate(self, inputs: int, question: api.Question, **_: Any) -> Estimate:
        return self.answers.get(inputs, make_ranked_estimate())


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    found = Engine()
    monkeypatch.setattr(param_sweep, "read_inputs", found.read_inputs)
    monkeypatch.setattr(param_sweep, "estimate", found.estimate)
    return found


def test_every_combination_is_a_row_and_the_last_param_changes_first(engine: Engine) -> None:
    values = {"layers": (2, 4), "hidden": (8, 16)}
    answer = api.sweep("m.py", values, params={"heads": 1})
    assert engine.params == [
        {"heads": 1, "layers": 2, "hidden": 8},
        {"heads": 1, "layers": 2, "hidden": 16},
        {"heads": 1, "layers": 4, "hidden": 8},
        {"heads": 1, "layers": 4, "hidden": 16},
    ]
    assert [row.params for row in answer.sweep][1] == {"layers": 2, "hidden": 16}
    assert answer.values == values
    assert answer.question is not None and answer.question.params == {"heads": 1}


def test_the_plan_of_a_row_is_the_recommended_one(engine: Engine) -> None:
    (row,) = api.sweep("m.py", {"layers": (2,)}).sweep
    assert row.plan is not None
    assert row.plan == make_ranked_estimate().best
    assert row.why_not is None


def test_without_a_recommendation_it_is_the_first_that_needs_no_port(engine: Engine) -> None:
    ported, own = make_plan(needs_port=True), make_plan(position=2)
    engine.answers[2] = make_ranked_estimate().model_copy(
        update={"recommended": None, "plans": (ported, own)}
    )
    (row,) = api.sweep("m.py", {"layers": (2,)}).sweep
    assert row.plan == own


def test_a_value_that_fails_or_has_no_plan_is_a_row_that_says_why(engine: Engine) -> None:
    engine.errors[2] = UserFileError("m.py:3: too deep", fix="correct m.py.")
    engine.answers[4] = make_ranked_estimate().model_copy(
        update={"plans": (), "recommended": None, "nearest_miss": "The cheapest takes $46."}
    )
    failed, none, found = api.sweep("m.py", {"layers": (2, 4, 8)}).sweep
    assert failed.plan is None and failed.workload is None and failed.feasible is None
    assert failed.why_not == "m.py:3: too deep\nTo fix: correct m.py."
    assert none.plan is None and none.workload is not None
    assert none.why_not is not None and "The cheapest takes $46." in none.why_not
    assert found.plan is not None


def test_what_is_wrong_with_the_question_ends_it_at_the_first_value(engine: Engine) -> None:
    engine.errors[2] = UsageError("There is no accelerator 'H300'.")
    with pytest.raises(UsageError, match="H300"):
        api.sweep("m.py", {"layers": (2, 4)})
    assert len(engine.params) == 1


@pytest.mark.parametrize(
    ("values", "params", "said"),
    [
        ({}, {}, "No param has several values"),
        ({"layers": range(65)}, {}, "at most 64 combinations"),
        ({"layers": "24"}, {}, "a sequence of values"),
        ({"layers": ()}, {}, "a sequence of values"),
        ({"layers": (1,)}, {"layers": 2}, "one value in params, and several"),
    ],
)
def test_values_that_are_no_sweep_are_refused(
    engine: Engine, values: dict[str, Any], params: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        api.sweep("m.py", values, params=params)
    assert engine.params == []


def test_each_answer_is_handed_out_as_it_is_made(engine: Engine) -> None:
    seen: list[int] = []
    api.sweep("m.py", {"layers": (2, 4)}, on_answer=lambda inputs, _: seen.append(inputs))  # pyright: ignore[reportArgumentType]
    assert seen == [2, 4]


def test_progress_says_which_of_the_values_it_is(engine: Engine) -> None:
    told: list[str] = []
    values = {"layers": (2, 4)}
    api.sweep("m.py", values, on_progress=lambda stage, _done, _total: told.append(stage))
    assert told == ["1 of 2, layers=2: tracing the model", "2 of 2, layers=4: tracing the model"]


def test_rows_are_flat_and_have_the_columns(engine: Engine) -> None:
    engine.errors[4] = UserFileError("failed")
    answer = api.sweep("m.py", {"layers": (2, 4)})
    rows = answer.rows()
    assert [row["params.layers"] for row in rows] == [2, 4]
    assert rows[1]["why_not"] == "failed" and rows[1]["plan.id"] is None
    assert tuple(rows[0]) == answer.columns()
    assert str(answer).splitlines()[2] == "layers=4: failed"


@pytest.mark.slow
def test_a_real_file_gives_more_parameters_with_more_layers(tmp_path: Path) -> None:
    file = tmp_path / "deep.py"
    file.write_text(
        "import torch\n"
        "def build_model(layers=2):\n"
        "    if layers > 9: raise ValueError('too deep')\n"
        "    return torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(layers)])\n"
        "def make_batch(batch_size=4): return (torch.randn(batch_size, 64),)\n"
        "def compute_loss(model, batch): return model(*batch).square().mean()\n"
    )
    question = api.Question(machine=api.Machine(accelerators=("L4",), max_nodes=1))
    two, four, ten = api.sweep(file, {"layers": (2, 4, 10)}, question).sweep
    assert two.workload is not None and four.workload is not None
    assert four.workload.parameters == 2 * two.workload.parameters == 4 * (64 * 64 + 64)
    assert two.plan is not None and ten.plan is None
    assert ten.why_not is not None and "too deep" in ten.why_not
