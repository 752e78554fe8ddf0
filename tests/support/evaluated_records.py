"""The open records under every protocol, predicted once for all the tests of a process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpuplan.api.validation import RecordedRuns, TimedRun
from gpuplan.planner.validation.errors import Observation, SummaryRow
from gpuplan.planner.validation.folds import PROTOCOLS, Protocol
from gpuplan.profiles.records import RunRecord

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))  # Where Python puts it when `make accuracy` runs.
groups = importlib.import_module("evaluation.groups")
published_records = importlib.import_module("evaluation.published_records")
traces = importlib.import_module("evaluation.traces")


@dataclass(frozen=True)
class Evaluated:
    """The open records under every protocol."""

    records: Sequence[RunRecord]
    seen: dict[Protocol | None, list[Observation]]
    timed: Sequence[TimedRun]

    def rows(self, protocol: Protocol) -> dict[str, SummaryRow]:
        """Return step time errors by group: sources, dense models and experts apart."""
        named = groups.split_groups(self.records)
        found = groups.summarise_groups(self.seen[protocol], named, protocol)
        return {row.group: row for row in found}


@cache
def kept_traces() -> Any:
    """Return the profiles that are kept beside the records."""
    return traces.KeptTraces()


@cache
def evaluate() -> Evaluated:
    """Return the open records under every protocol, which takes minutes."""
    with own_home():
        runs = RecordedRuns(published_records.OPEN_RECORDS, profiler=kept_traces().profiles)
        seen: dict[Protocol | None, list[Observation]] = {None: runs.observations()}
        seen |= {protocol: runs.observations(protocol) for protocol in PROTOCOLS}
        return Evaluated(runs.records, seen, runs.timed())


@contextmanager
def own_home() -> Iterator[None]:
    """Keep what is not in the archive, and takes minutes to trace, from run to run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUPLAN_HOME", str(ROOT / ".cache" / "accuracy"))
        yield
