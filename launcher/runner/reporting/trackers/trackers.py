"""W&B and MLflow beside training: what is slow, hangs or fails there never stops a step.

Each tracker has a thread of its own, which reads the lines of `metrics.jsonl` and
`evaluations.jsonl` and hands them over. How far it is stands on disk: a run that was killed and
goes on, or gets a tracker later, leaves no gap. The first failure is said once, and nothing goes to
that tracker after it.

    trackers/NAME.json   the tracker's own id of this run, and how much of each file it has
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from .....catalog.files import write_atomically
from ...training_options import MLFLOW, WANDB
from .mlflow_runs import mlflow_opener
from .wandb_runs import wandb_opener

Numbers = dict[str, float]
FILES = {"metrics.jsonl": "", "evaluations.jsonl": "evaluation/"}
"""What is read, and what its numbers are called after."""
LEFT_OUT = ("step", "time", "best_step")
PAUSE_S = 1.0
"""Between two readings, so that many steps go in one request."""
CLOSE_S = 60.0
"""How long a run that has ended waits for its trackers: its machines are paid for."""


class TrackedRun(Protocol):
    """One run as a tracker keeps it."""

    @property
    def run_id(self) -> str:
        """The tracker's own name of it."""
        ...

    def log(self, rows: Sequence[Numbers]) -> None:
        """Add rows of numbers; each has `step` and `time`, seconds since 1970."""
        ...

    def close(self, *, failed: bool) -> None:
        """Write what is left."""
        ...


Open = Callable[[str | None], TrackedRun]
"""Opens the run of this id, or a new one for None."""
Opener = Callable[[Path, Mapping[str, Any]], Open]
"""Imports a tracker; given the folder of results, and what is known of the run before it begins."""

OPENERS: dict[str, Opener] = {WANDB: wandb_opener, MLFLOW: mlflow_opener}


class Tracker:
    """One tracker, in a thread of its own from the start."""

    def __init__(
        self,
        name: str,
        folder: Path,
        open_run: Open,
        tell: Callable[[str], None],
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._name = name
        self._folder = folder
        self._open_run = open_run
        self._tell = tell
        self._pause_s = pause_s
        self._failed_run = False
        self._is_given_up = False
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def close(self, *, failed: bool, close_s: float = CLOSE_S) -> None:
        """Wait a while until all is handed over; say so where it is not.

        Args:
            failed: whether the run did.
            close_s: how long.
        """
        self._failed_run = failed
        self._ends.set()
        self._thread.join(close_s)
        if self._thread.is_alive():
            self._is_given_up = True
            self._tell(
                f"{self._name} has not taken everything {close_s:g} s after the end, and is left"
                " alone; the run goes on"
            )

    def _work(self) -> None:
        try:
            known = _read(self._id_file)
            run = self._open_run(known.get("run"))
            places = {name: int(known.get(name) or 0) for name in FILES}
            self._keep(run.run_id, places)
            while True:
                is_last = self._ends.wait(self._pause_s)
                rows = list(self._new_rows(places))
                if rows:
                    run.log(rows)
                    self._keep(run.run_id, places)
                if is_last:
                    return run.close(failed=self._failed_run)
        # Whatever it is (no network, a full disk, a SystemExit): curves are not worth the run.
        except BaseException as error:
            if not self._is_given_up:
                lines = str(error).strip().splitlines()
                why = ": ".join([type(error).__name__, *lines[:1]])
                self._tell(f"nothing more is written to {self._name} ({why}); the run goes on")

    def _keep(self, run_id: str, places: Mapping[str, int]) -> None:
        write_atomically(self._id_file, json.dumps({"run": run_id, **places}) + "\n")

    @property
    def _id_file(self) -> Path:
        return self._folder / "trackers" / f"{self._name}.json"

    def _new_rows(self, places: dict[str, int]) -> Iterator[Numbers]:
        """Yield what was written since, and move the places, in bytes, behind it."""
        for name, prefix in FILES.items():
            path = self._folder / name
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(places[name])
                whole, end, _ = file.read().rpartition(b"\n")
            places[name] += len(whole) + len(end)
            yield from _rows(whole.splitlines(), prefix)


def open_trackers(
    names: Sequence[str],
    folder: Path,
    facts: Mapping[str, Any],
    tell: Callable[[str], None],
    openers: Mapping[str, Opener] = OPENERS,
) -> list[Tracker]:
    """Return the trackers that are asked for and can be imported here.

    Args:
        names: of them.
        folder: of results.
        facts: what is known of the run before it begins.
        tell: called with messages for the user.
        openers: of every tracker by its name.
    """
    found = []
    for name in names:
        try:
            # Not in its thread: data loaders are forked, and the lock of an import with them.
            open_run = openers[name](folder, facts)
        except Exception as error:
            tell(f"nothing is written to {name} ({type(error).__name__}: {error}); the run goes on")
        else:
            found.append(Tracker(name, folder, open_run, tell))
    return found


def numbers_of(metrics: Mapping[str, Any], prefix: str = "") -> Numbers:
    """Return all numbers of a line of metrics, those of nested dictionaries too.

    >>> numbers_of({"mfu": None, "parts_s": {"input": 0.5}})
    {'parts_s/input': 0.5}
    """
    return dict(_numbers(metrics, prefix))


def _numbers(metrics: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + name, value


def _rows(lines: Iterable[bytes], prefix: str) -> Iterator[Numbers]:
    """Yield the numbers of lines; a kill may have left half of one."""
    for line in lines:
        try:
            found = json.loads(line)
            place = {"step": int(found["step"]), "time": float(found["time"])}
        except (ValueError, KeyError, TypeError):
            continue
        others = {name: value for name, value in found.items() if name not in LEFT_OUT}
        yield {**place, **numbers_of(others, prefix)}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
