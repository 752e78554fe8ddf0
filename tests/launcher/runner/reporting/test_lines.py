"""Files of lines: what a kill left in the middle of one costs no later line."""

import json
from pathlib import Path

import pytest

from gpuplan.launcher.guard.node.readings import Metrics
from gpuplan.launcher.local.run_folder import last_metrics, tokens_per_sample
from gpuplan.launcher.runner.reporting.lines import open_lines
from gpuplan.launcher.runner.reporting.metrics import MetricsFile


def whole_lines(path: Path) -> list[int]:
    """Return the steps of the lines that a reader can read."""
    steps = []
    for line in path.read_text().splitlines():
        try:
            steps.append(json.loads(line)["step"])
        except ValueError:
            continue
    return steps


def test_a_run_that_goes_on_behind_half_a_line_loses_none_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    watched = Metrics(path, steps=3, settled=0)
    file = MetricsFile(tmp_path, hook=None)
    file.write({"step": 2, "step_time_s": 0.5, "loss": 1.9})
    file.close()
    assert whole_lines(path) == [1, 2]
    watched.read(1.0)
    assert (watched.step, watched.trained, list(watched.times_s)) == (2, 1, [0.5])


@pytest.mark.parametrize("before", [None, "", '{"step": 1}\n'])
def test_a_file_whose_lines_are_whole_gets_no_empty_one(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "evaluations.jsonl"
    if before is not None:
        path.write_text(before)
    with open_lines(path) as file:
        file.write("{}\n")
    assert path.read_text() == (before or "") + "{}\n"


@pytest.mark.parametrize("torn", ['{"step": 3, "tokens_per_s": 9', "7", '{"step": "\\u00'])
def test_the_newest_whole_line_is_read_before_a_torn_one(tmp_path: Path, torn: str) -> None:
    whole = '{"step": 2, "tokens_per_s": 400.0, "samples_per_s": 4.0}\n'
    (tmp_path / "metrics.jsonl").write_text(whole + torn)
    assert (last_metrics(tmp_path) or {})["step"] == 2
    assert tokens_per_sample(tmp_path) == 100.0
