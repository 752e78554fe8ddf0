"""Budget reports that were made, kept as they were."""

from datetime import date
from pathlib import Path

from budget_reports import small_report

from gpuplan.launcher.store.reports import keep_report, kept_days, kept_report


def made_at(day: str, **changes):
    return small_report().model_copy(update={"generated_at": f"{day}T10:00:00+00:00", **changes})


def test_the_last_report_up_to_a_day_is_found(tmp_path: Path) -> None:
    project = tmp_path / "gpuplan.yaml"
    first, second = made_at("2026-11-01"), made_at("2026-11-20", seed=2)
    for one in (first, second):
        keep_report(one, project, folder=tmp_path)
    assert kept_report(project, date(2026, 11, 19), folder=tmp_path) == first
    assert kept_report(project, date(2026, 11, 20), folder=tmp_path) == second
    assert kept_report(project, date(2026, 10, 31), folder=tmp_path) is None
    assert kept_days(project, folder=tmp_path) == ["2026-11-20", "2026-11-01"]


def test_of_reports_of_a_day_that_say_the_same_the_last_is_kept(tmp_path: Path) -> None:
    project = tmp_path / "gpuplan.yaml"
    first, second = (
        small_report().model_copy(update={"generated_at": f"2026-11-01T1{hour}:00:00+00:00"})
        for hour in (0, 1)
    )
    for one in (first, second, made_at("2026-11-02")):
        keep_report(one, project, folder=tmp_path)
    assert kept_days(project, folder=tmp_path) == ["2026-11-02", "2026-11-01"]
    assert kept_report(project, date(2026, 11, 1), folder=tmp_path) == second
    assert len(list(tmp_path.rglob("*.json.gz"))) == 2


def test_projects_are_told_apart_by_their_file(tmp_path: Path) -> None:
    keep_report(made_at("2026-11-01"), tmp_path / "a.yaml", folder=tmp_path)
    assert kept_report(tmp_path / "b.yaml", date(2027, 1, 1), folder=tmp_path) is None


def test_a_damaged_report_is_passed_over(tmp_path: Path) -> None:
    project = tmp_path / "gpuplan.yaml"
    keep_report(made_at("2026-11-01"), project, folder=tmp_path)
    keep_report(made_at("2026-11-02", seed=2), project, folder=tmp_path)
    newest = max(tmp_path.rglob("*.json.gz"))
    newest.write_bytes(newest.read_bytes()[:-40])
    assert kept_days(project, folder=tmp_path) == ["2026-11-01"]
