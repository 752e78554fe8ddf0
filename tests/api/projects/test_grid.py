"""The models that a ladder and a grid make."""

from pathlib import Path

import pytest

from gpuplan.api.projects.grid import params_taken, rungs, variants
from tests.support.projects import make_project


def experiment(**fields):
    return make_project(experiments={"a": {"model": "a.py", "tokens": 9, **fields}}).experiments[
        "a"
    ]


def test_params_of_the_model_make_models_and_others_make_runs() -> None:
    spec = experiment(runs={"seeds": 2, "grid": {"lr": [1, 2, 3], "layers": [6, 12]}})
    found = list(variants(spec, frozenset({"layers"})))
    assert found == [("[layers=6]", {"layers": 6}, 3), ("[layers=12]", {"layers": 12}, 3)]


def test_a_file_that_takes_any_param_has_a_model_for_every_combination() -> None:
    spec = experiment(runs={"grid": {"lr": [1, 2], "layers": [6, 12]}})
    assert len(list(variants(spec, None))) == 4


def test_random_draws_are_spread_over_the_models() -> None:
    spec = experiment(runs={"random": 5, "grid": {"lr": [1, 2, 3], "layers": [6, 12]}})
    assert [count for _, _, count in variants(spec, frozenset({"layers"}))] == [3, 2]
    few = experiment(runs={"random": 1, "grid": {"layers": [6, 12]}})
    assert [count for _, _, count in variants(few, frozenset({"layers"}))] == [1]


def test_without_a_grid_there_is_one_model() -> None:
    assert list(variants(experiment(runs={"seeds": 3}), frozenset())) == [("", {}, 1)]


def test_rungs_have_their_own_params_and_work() -> None:
    spec = experiment(
        ladder=[{"params": {"layers": 2}}, {"name": "big", "params": {"layers": 9}, "tokens": "1k"}]
    )
    found = list(rungs("ladder", spec))
    assert [(name, params) for name, params, _ in found] == [
        ("ladder/1", {"layers": 2}),
        ("ladder/big", {"layers": 9}),
    ]
    assert [amount["tokens"] for _, _, amount in found] == [9, 1000]


@pytest.mark.parametrize(
    ("code", "taken"),
    [
        ("def build_model(layers=1, *, width=2): ...", {"layers", "width"}),
        ("def build_model(**params): ...", None),
        ("class Net:\n    def __init__(self, depth): ...", set()),
        ("def build_model(:", set()),
    ],
)
def test_params_are_read_from_the_file_without_running_it(
    tmp_path: Path, code: str, taken: set[str] | None
) -> None:
    file = tmp_path / "m.py"
    file.write_text(f"raise SystemExit('run')\n{code}\n")
    assert params_taken(file) == (taken if taken is None else frozenset(taken))


def test_a_plain_module_takes_those_of_its_class(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("class Net:\n    def __init__(self, depth): ...\ndef build_model(x): ...\n")
    assert params_taken(file, "Net") == {"depth"}
