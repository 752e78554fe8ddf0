"""The open records beside what others predict of them: what docs/accuracy.md and README.md say."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuplan.api.validation import RecordedRuns
from tests.support import evaluated_records

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))  # Where Python puts it when `make accuracy` runs.
step_times = importlib.import_module("evaluation.others.step_times")

# All models are predicted once, and traced if the code that traces has changed.
pytestmark = [pytest.mark.slow, pytest.mark.accuracy, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def beside() -> Any:
    evaluated = evaluated_records.evaluate()
    with evaluated_records.own_home():
        profiler = evaluated_records.kept_traces().profiles
        runs = RecordedRuns([step_times.NEUSIGHT_RUNS], profiler=profiler)
        neusight = {one: runs.observations(one) for one in ("source", "accelerator")}
    return step_times.compare(evaluated.records, evaluated.seen, neusight)


def readme() -> str:
    return " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_steps_of_neusight_s_runs_are_as_near_as_its_own_predictions(beside: Any) -> None:
    ours = step_times.error_of(beside.one_gpu)
    theirs = step_times.error_of(beside.one_gpu, step_times.predicted_by("neusight"))
    assert len(beside.one_gpu) == 31
    assert ours < theirs
    assert f"{100 * ours:.1f} % off (NeuSight {100 * theirs:.1f} %" in readme()
    new = step_times.error_of(beside.one_gpu, beside.new_devices)
    assert f"without anything measured on the device {100 * new:.1f} %" in readme()


def test_split_steps_are_nearer_than_calculon_s_and_the_rule_of_thumb(beside: Any) -> None:
    columns = zip(*beside.split_errors().values(), strict=True)
    ours, calculon, rule = map(step_times.mean_of, columns)
    assert ours < min(calculon, rule) / 2
    text = f"{100 * ours:.1f} %, Calculon {100 * calculon:.1f} %, the rule of 40 % of peak"
    assert f"{text} {100 * rule:.1f} %" in readme()


def test_layouts_chosen_are_faster_than_those_that_calculon_would_choose(beside: Any) -> None:
    ours, theirs = beside.regret, beside.calculon_regret
    assert ours.mean < theirs.mean < ours.at_random
    assert f"{100 * ours.mean:.1f} % longer than the fastest, {100 * theirs.mean:.1f} %" in readme()
