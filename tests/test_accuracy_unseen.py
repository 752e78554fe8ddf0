"""Runs that nothing is fitted to, and what was gathered before anybody had predicted it.

`tests/published/unseen/README.md` says what each set is; `tests/test_accuracy.py` holds the records
that constants are fitted to.
"""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuplan.api.validation import RecordedRuns, timed_runs
from gpuplan.planner.validation.errors import Observation

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))  # Where Python puts it when `make accuracy` runs.
first_reading = importlib.import_module("evaluation.first_reading")
programmes = importlib.import_module("evaluation.programmes")
programmes_unseen = importlib.import_module("evaluation.programmes_unseen")
traces = importlib.import_module("evaluation.traces")
unread = importlib.import_module("evaluation.errors.unread")
unread_fits = importlib.import_module("evaluation.errors.unread_fits")
unread_layouts = importlib.import_module("evaluation.layouts.unread_layouts")
unread_memory = importlib.import_module("evaluation.errors.unread_memory")

READINGS_COVERED = (0.84, 0.93)  # 89 %
"""Mean share inside the 80 % interval over sources, of records as they were first written. The
interval is fitted to these and to the sources of the day before, of which it covers as much less
than 80 % as more of these."""
USUAL_JOBS_MEAN = 0.18  # 17.8 %; 19.5 as they were gathered
MORE_JOBS_MEAN = 0.255  # 25.2 %; 26.5 as they were gathered
UNSEEN_COVERED = (0.8, 0.9)  # 86 %; 82 to 2026-11-29
"""Share inside the interval of the runs that nothing is fitted to, of the four sets together."""
UNSEEN_MEAN, OTHER_KINDS_MEAN = 0.155, 0.185  # 14.6 and 18.4 %
LAYOUTS_CHOSEN, LAYOUTS_IN_ORDER = 35, 0.83  # Of 49; 84 %
LAYOUTS_MEDIAN_ERROR = 0.145  # 13.7 %
FITS_RIGHT, FITS_OFFERED = 0.82, 3  # 83 %; of 31 that ran out
LEAST_MEDIAN_OF_JOBS = 0.7
"""Of expected ÷ published hours; what these hold beside the steps is not known."""
UNSEEN_PROGRAMMES_INSIDE = 0.58  # 61 %, groups weighing alike
UNSEEN_MEMORY_MEAN, UNSEEN_MEMORY_COVERED = 0.1, 0.82  # 9.6 and 85 %

# All models are predicted once, and traced if the code that traces has changed.
pytestmark = [pytest.mark.slow, pytest.mark.accuracy, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def kept() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        # What is not in the archive takes minutes to trace: kept from run to run.
        patch.setenv("GPUPLAN_HOME", str(ROOT / ".cache" / "accuracy"))
        yield traces.KeptTraces()


def predicted(kept: Any, path: Path) -> list[Observation]:
    return RecordedRuns([path], profiler=kept.profiles).observations()


def test_the_interval_holds_where_nobody_looked_into_the_software(kept: Any) -> None:
    with first_reading.first_readings() as paths:
        found = unread.readings(timed_runs(paths, profiler=kept.profiles))
    assert READINGS_COVERED[0] <= unread.covered_readings(found) <= READINGS_COVERED[1]


def test_runs_that_nothing_is_fitted_to_are_where_they_are_expected(kept: Any) -> None:
    seen, others, usual, more = (
        predicted(kept, path)
        for path in (unread.UNSEEN, unread.OTHER_KINDS, unread.USUAL_JOBS, unread.MORE_JOBS)
    )
    assert unread.mean_unseen_error(seen) <= UNSEEN_MEAN
    assert unread.mean_unseen_error(others) <= OTHER_KINDS_MEAN
    assert unread.mean_unseen_error(usual) <= USUAL_JOBS_MEAN
    assert unread.mean_unseen_error(more) <= MORE_JOBS_MEAN
    together = [*seen, *others, *usual, *more]
    covered = unread.covered_unseen(together)
    assert UNSEEN_COVERED[0] <= covered <= UNSEEN_COVERED[1]
    timed = [run for run in together if run.measured_step_time_s]
    assert f"Of {len(timed)} runs of {len({run.source_group for run in timed})} more" in readme()
    assert f"{100 * covered:.0f} % lie in the 80 % interval" in readme()


def test_layouts_that_others_compared_are_chosen_and_timed_as_expected(kept: Any) -> None:
    seen = predicted(kept, unread_layouts.UNSEEN_LAYOUTS)
    found = unread_layouts.compared(seen)
    chosen, of = sum(one.chosen for one in found), sum(len(one.sweeps) for one in found)
    assert chosen >= LAYOUTS_CHOSEN and unread_layouts.in_order(found) >= LAYOUTS_IN_ORDER
    assert f"in {chosen} of {of} published comparisons" in readme()
    assert f"(by chance it would be in {unread_layouts.by_chance(found):.0f})" in readme()
    assert f"took {100 * unread_layouts.mean_regret(found):.0f} % longer than the best" in readme()
    assert unread_layouts.median_error(seen) <= LAYOUTS_MEDIAN_ERROR


def test_jobs_that_nobody_looked_into_fit_or_run_out_as_expected(kept: Any) -> None:
    found = unread_fits.judged(predicted(kept, unread_fits.UNSEEN_FITS))
    assert unread_fits.right(found) >= FITS_RIGHT
    offered, out = unread_fits.offered(found), sum(not one.ran for one in found)
    assert offered <= FITS_OFFERED
    assert f"{offered} of the {out} that ran out would have been offered" in readme()
    by_states = sum(unread_fits.fits_by_states(one) for one in found if not one.ran)
    assert f"estimators count, {by_states} would fit" in readme()
    known = sum(one.is_right for one in found)
    assert f"Of {len(found)} jobs that ran or ran out of memory {known}" in readme()


def readme() -> str:
    return " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_memory_that_nobody_looked_into_is_where_it_is_expected(kept: Any) -> None:
    seen = predicted(kept, unread_memory.UNSEEN_MEMORY)
    assert unread_memory.mean_error(seen) <= UNSEEN_MEMORY_MEAN
    assert unread_memory.covered(seen) >= UNSEEN_MEMORY_COVERED
    text = " ".join(unread_memory.unread_memory_part(seen).split())
    said = re.search(r"Now \S+ % \(median (\S+) %\)", text)
    assert said is not None and f"and is {float(said[1]):.0f} since" in readme()


def test_trainings_that_nobody_had_predicted_take_about_the_hours_that_are_expected(
    kept: Any,
) -> None:
    found = programmes.programmes(kept.profiles, programmes_unseen.UNSEEN_PROGRAMMES)
    assert len(found) == 71
    assert 0.85 <= programmes.median_ratio(found) <= 1.15
    assert programmes_unseen.inside(found) >= UNSEEN_PROGRAMMES_INSIDE
    assert f"took {1 / programmes.median_ratio(found):.2f} times in the median" in readme()


def test_small_jobs_take_at_least_about_the_hours_that_are_expected_of_their_steps(
    kept: Any,
) -> None:
    found = programmes.programmes(kept.profiles, programmes_unseen.UNSEEN_JOBS, start_s=0.0)
    assert len(found) == 82
    assert LEAST_MEDIAN_OF_JOBS <= programmes.median_ratio(found) <= 1.15
    assert f"small jobs {1 / programmes.median_ratio(found):.2f} times" in readme()
