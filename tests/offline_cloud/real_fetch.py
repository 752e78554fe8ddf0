"""Results that are brought from the machine, and a job that left none.

`make test-cloud` runs this; `make test` does not collect it.
"""

from pathlib import Path

import pytest
from offline_cloud.cloud import Cloud
from offline_cloud.person import Person, step_lines, whole_checkpoints

LAUNCH = ("launch", "--provider", "aws", "--synthetic", "-y", "--fetch", "results")


@pytest.fixture
def person(cloud: Cloud, tmp_path: Path, gpuplan_home: Path) -> Person:
    return Person(cloud, tmp_path / "project", gpuplan_home)


@pytest.mark.timeout(900)
def test_results_are_brought_before_the_machine_goes(person: Person) -> None:
    person.estimate()
    said = person(*LAUNCH, "--steps", "5", timeout_s=600)
    record = person.settled("succeeded")
    results = person.folder / "results"
    assert f"saved at {results}" in said
    assert [one["step"] for one in step_lines(results)] == [1, 2, 3, 4, 5]
    assert whole_checkpoints(results) == [5]
    assert record["run"] in person("history")


@pytest.mark.timeout(900)
def test_a_set_up_that_fails_keeps_no_machine_for_results(person: Person) -> None:
    person.estimate()
    failing = "echo no such package >&2; exit 3"
    said = person(*LAUNCH, "--steps", "5", "--setup", failing, code=None, timeout_s=600)
    person.settled("failed")
    assert "it left no results" in said and "no results are at" in said
    assert "Nothing is open" in person("status")
