"""Run records, predicted under several protocols."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ...catalog.errors import GpuplanError
from ...catalog.snapshot import Catalogue, load_catalogue
from ...catalog.version import VERSION
from ...planner.constants import Constants
from ...planner.hardware.cluster import Site
from ...planner.plan.setup import Setup
from ...planner.predict.kept.kept_tables import KeptTables
from ...planner.predict.kept.model_cache import ModelCache
from ...planner.predict.step_time import doubts_of, planned_step_s, step_parts
from ...planner.validation.errors import Observation, Validation, prediction_errors
from ...planner.validation.folds import Protocol
from ...profiles.curves.choice import USUAL_CURVES, CurveChoice
from ...profiles.records import RunRecord
from ...profiles.tracing_process.batch import Profiler, profile_all
from ..tables_on_disk import TablesOnDisk
from .benches import Benches, configuration, held_out, on_bench
from .cases import Case, load_cases
from .observing import observe


def validate(
    paths: str | Path | Iterable[str | Path],
    *,
    profiler: Profiler = profile_all,
    catalogue: Catalogue | None = None,
    hold_out: Protocol | None = None,
    curve_choice: CurveChoice = USUAL_CURVES,
) -> Validation:
    """Return predictions for every run of these record files, with their errors and summaries.

    Args:
        paths: One or several JSON Lines files of run records; a record's model file is looked for
            beside its record file, then among the examples that come with gpuplan.
        profiler: Makes the Profiles; default: trace in child processes, cached.
        catalogue: Where accelerators are looked up; default: the embedded one.
        hold_out: Predict every run with constants that were fitted without its fold.
        curve_choice: Which measurements of devices the predictions rest on.

    Raises:
        UsageError: a file cannot be read, or lines of it are not run records.
    """
    several = [paths] if isinstance(paths, str | Path) else paths
    files = [Path(one) for one in several]
    runs = RecordedRuns(
        files,
        profiler=profiler,
        catalogue=catalogue,
        curve_choice=curve_choice,
        kept=TablesOnDisk(),
    )
    return runs.prediction_errors(hold_out)


class RecordedRuns:
    """Run records, predicted under several protocols; profiles and memory are computed once."""

    def __init__(
        self,
        paths: Iterable[Path],
        *,
        profiler: Profiler = profile_all,
        catalogue: Catalogue | None = None,
        curve_choice: CurveChoice = USUAL_CURVES,
        kept: KeptTables | None = None,
    ) -> None:
        self._cases, profiles = load_cases(paths, profiler, catalogue or load_catalogue())
        self._benches = Benches(profiles, curve_choice, kept)

    @property
    def records(self) -> list[RunRecord]:
        """The records, in the order of their files."""
        return [case.record for case in self._cases]

    def observations(self, hold_out: Protocol | None = None) -> list[Observation]:
        """Return every run, predicted as `validate` does under this protocol."""
        seen = [observe(case, self._benches, hold_out) for case in self._cases]
        self._benches.save()
        return seen

    def timed(self, ids: Container[str] | None = None) -> list[TimedRun]:
        """Return the runs that state a step time and can be predicted; of these ids, or all."""
        chosen = [case for case in self._cases if ids is None or case.record.id in ids]
        return [run for case in chosen if (run := _timed(case, self._benches)) is not None]

    def prediction_errors(self, hold_out: Protocol | None = None) -> Validation:
        """Return what `validate` returns under this protocol."""
        answer = prediction_errors(self.observations(hold_out), hold_out=hold_out)
        return answer.model_copy(update={"gpuplan_version": VERSION})


@dataclass(frozen=True, kw_only=True)
class TimedRun:
    """A run with a measured time, prepared so that it can be predicted repeatedly."""

    id: str
    source: str
    accelerator: str
    configuration: str
    measured_s: float
    cache: ModelCache
    site: Site
    setup: Setup

    def seconds(self) -> float:
        """Return the predicted step time."""
        return planned_step_s(self.cache, self.site, self.setup)

    def doubts(self) -> dict[str, float]:
        """Return what can be wrong with that time, as relative sizes by constant `doubt.*`."""
        parts = step_parts(self.cache, self.site, self.setup)
        return doubts_of(self.cache, self.site, self.setup, parts)

    def with_constants(self, constants: Constants) -> TimedRun:
        """Return the run, predicted with other constants."""
        return replace(self, cache=self.cache.with_constants(constants))

    def on_network(self, multiple: float) -> TimedRun:
        """Return the run, predicted for this multiple of the rate between nodes, if it is known."""
        link = self.site.inter_link
        if link.bytes_per_s is None:
            return self
        link = link.model_copy(update={"bytes_per_s": link.bytes_per_s * multiple})
        return replace(self, site=replace(self.site, inter_link=link))

    def held_out(self, protocol: Protocol) -> TimedRun:
        """Return the run, predicted as if it and all others of its fold had never been seen."""
        cache = held_out(
            self.cache,
            protocol,
            configuration=self.configuration,
            source=self.source,
            accelerator=self.accelerator,
        )
        return replace(self, cache=cache)


def timed_runs(
    paths: Iterable[Path], *, profiler: Profiler = profile_all, catalogue: Catalogue | None = None
) -> list[TimedRun]:
    """Return the runs of these record files that state a step time and can be predicted."""
    return RecordedRuns(paths, profiler=profiler, catalogue=catalogue).timed()


def _timed(case: Case, benches: Benches) -> TimedRun | None:
    measured_s = case.record.measured.step_time_s
    if case.run is None or case.request is None or not measured_s:
        return None
    try:
        cache, setup = on_bench(case, benches)
        run = TimedRun(
            id=case.record.id,
            source=case.record.source_group,
            accelerator=case.accelerator,
            configuration=configuration(case.record),
            measured_s=measured_s,
            cache=cache,
            site=case.run.site,
            setup=setup,
        )
        run.seconds()
    except GpuplanError:
        return None
    return run
