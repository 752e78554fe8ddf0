"""The guard's report: the last line that it wrote into the log of its job."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from ...catalog.frozen import FrozenModel, Usd
from ..store.launch_record import Outcome
from ..task_file import UPLOAD_MARK

MARK = "gpuplan-guard: "
RUN_MARK = "gpuplan-record: "
OUTCOMES: dict[str, Outcome] = {
    "done": "succeeded",
    "smoke": "succeeded",
    "stop": "stopped",
    "signal": "lost",
}
FAILURES = ("failed", "loss")


class GuardReport(FrozenModel):
    """How the guard ended a job, and what it had counted until then."""

    why: str
    text: str
    exit_code: int
    spent_usd: Usd | None = None
    """Cost of all attempts when the job ended; the machines cost more until they are torn down."""
    step: int | None = None
    projected_usd: Usd | None = None

    @property
    def outcome(self) -> Outcome:
        """Return how the launch ended."""
        if self.why in FAILURES:
            return "failed"
        return OUTCOMES.get(self.why, "guarded")


def word_in_log(log: str) -> GuardReport | None:
    """Return the guard's report in the log of a job; None where there is none."""
    for line in reversed(log.splitlines()):
        _, mark, text = line.partition(MARK)
        if mark:
            return _word(text)
    return None


def lacks_results(log: str) -> bool:
    """Return whether a job ended before its results had all arrived in their bucket."""
    return UPLOAD_MARK in log


def run_in_log(log: str) -> dict[str, Any] | None:
    """Return the run record that the guard has put into the log of a job; None without one."""
    for line in reversed(log.splitlines()):
        _, mark, text = line.partition(RUN_MARK)
        if mark:
            try:
                found = json.loads(text)
            except ValueError:
                return None
            return found if isinstance(found, dict) else None
    return None


def _word(text: str) -> GuardReport | None:
    try:
        said = json.loads(text)
        verdict = said.get("verdict")
        if not isinstance(verdict, dict):
            return None
        return GuardReport(
            why=str(verdict["why"]),
            text=str(verdict["text"]),
            exit_code=int(verdict["exit_code"]),
            spent_usd=_usd(said.get("spent_usd")),
            step=said.get("step"),
            projected_usd=_usd((said.get("projection") or {}).get("total_usd")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _usd(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value))
