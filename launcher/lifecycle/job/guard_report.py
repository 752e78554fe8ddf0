"""The guard's report: the last line that it wrote into the log of its job."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

from ....catalog.frozen import FrozenModel, Usd
from ....catalog.units import SECONDS_PER_HOUR
from ....planner.cost.launch_cost import CONTROLLER_IDLE_HOURS
from ....planner.cost.run_cost import CENT
from ...store.accounting import ZERO, attempt_usd
from ...store.launch_record import LaunchRecord, Outcome
from ...task_file import UPLOAD_MARK
from ..engine import EngineJob

MARK = "gpuplan-guard: "
RUN_MARK = "gpuplan-record: "
OUTCOMES: dict[str, Outcome] = {
    "done": "succeeded",
    "smoke": "succeeded",
    "stop": "stopped",
    "signal": "lost",
    "notice": "lost",
}
FAILURES = ("failed", "loss")
MANAGED_DOWN_S = 30
"""What machines of a managed job cost after their guard has ended, until they are gone. SkyPilot
0.14 looks every 15 s whether it has (JOB_STATUS_CHECK_GAP_SECONDS, sky/jobs/utils.py), then reads
the log and asks the cloud; 15 to 35 s on a simulated AWS."""


class GuardReport(FrozenModel):
    """How the guard ended a job, and what it had counted until then."""

    why: str
    text: str
    exit_code: int
    spent_usd: Usd | None = None
    """Cost of all attempts when the job ended; the machines cost more until they are torn down."""
    waited_usd: Usd | None = None
    """Of it, what was paid while this launch waited for machines; None in lines of guards that did
    not count it."""
    step: int | None = None
    projected_usd: Usd | None = None
    command_s: float | None = None
    """How long its command ran; None in lines of guards that did not say it."""
    command_share: float | None = None
    """Of what was paid for in this attempt of the guard, until the command ended, from 0 to 1."""
    attempt_usd: Usd | None = None
    """Cost of this attempt of the guard."""
    usd_per_hour: Usd | None = None
    """All machines, by which it counted; None in lines of guards that did not say it."""
    paid_s: float | None = None
    """For how long it was paid for, by a clock that is not set."""

    @property
    def machines_usd(self) -> Decimal | None:
        """Return the cost of all attempts without that of the waits for machines."""
        return None if self.spent_usd is None else self.spent_usd - (self.waited_usd or ZERO)

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


def command_usd(record: LaunchRecord, job: EngineJob, word: GuardReport | None) -> Decimal | None:
    """Return what the time cost in which an attempt's command ran; None where that is not known.

    Of a job that the engine started again, the guard's last word is of its last machines alone.
    """
    last = record.last
    if last is None:
        return None
    if record.managed:
        machines_usd = None if word is None else word.machines_usd
        if word is None or word.command_share is None or word.attempt_usd is None:
            return None
        is_alone = machines_usd is not None and abs(machines_usd - word.attempt_usd) < CENT
        is_whole = job.recoveries == 0 and is_alone
        if not is_whole:
            return None
        if word.usd_per_hour is not None and word.command_s is not None:
            # What is rounded up of a bill is none of the command's.
            return _usd_of(word.usd_per_hour, word.command_s)
        return word.attempt_usd * Decimal(str(word.command_share))
    if word is not None and word.command_s is not None:
        seconds = word.command_s
    elif job.started_at is not None and job.ended_at is not None:
        seconds = (job.ended_at - job.started_at).total_seconds()
    else:
        return None
    if last.usd_per_hour is None:
        return None
    return _usd_of(last.usd_per_hour, seconds)


def _usd_of(usd_per_hour: Decimal, seconds: float) -> Decimal:
    return usd_per_hour * Decimal(str(seconds)) / Decimal(SECONDS_PER_HOUR)


def counted_s(job: EngineJob, word: GuardReport | None) -> float:
    """Return for how long machines cost at least, by their own clocks; 0 where they do not say.

    Until their job ended. The guard counts by a monotonic clock, the engine by the node's.
    """
    if word is not None and word.paid_s is not None:
        return word.paid_s
    if job.started_at is None or job.ended_at is None:
        return 0.0
    return max(0.0, (job.ended_at - job.started_at).total_seconds())


def managed_usd(
    record: LaunchRecord, job: EngineJob, word: GuardReport | None, *, now: datetime
) -> Decimal | None:
    """Return what the newest launch of a managed job cost; None where its guard did not say it.

    what its guards counted, without earlier launches of the run
    + (1 + machines that were replaced) × the tear-down × the price of all nodes
    + SkyPilot's controller while the job waits for machines, and until it stops

    The guard counts only while machines are paid for, but none of it sees them go. Its price holds
    the controller's.
    """
    last = record.last
    machines_usd = None if word is None else word.machines_usd
    if machines_usd is None or last is None or last.usd_per_hour is None:
        return None
    earlier = sum((attempt_usd(record, one, now=now) for one in record.attempts[:-1]), ZERO)
    downs = (1 + job.recoveries) * Decimal(MANAGED_DOWN_S) / Decimal(SECONDS_PER_HOUR)
    counted = max(ZERO, machines_usd - earlier) + downs * last.usd_per_hour
    paid_hours = counted / last.usd_per_hour if last.usd_per_hour else ZERO
    return (counted + _controller_usd(record, job.ended_at, paid_hours)).quantize(CENT)


def controller_usd(record: LaunchRecord, *, until: datetime) -> Decimal:
    """Return what the controller of a managed job cost that never had a machine."""
    return _controller_usd(record, until, ZERO).quantize(CENT)


def _controller_usd(
    record: LaunchRecord, ended_at: datetime | None, paid_hours: Decimal
) -> Decimal:
    """Return what the controller of a managed job costs while no machine of the job is paid for."""
    rate, last = record.controller_usd_per_hour, record.last
    if rate is None or last is None:
        return ZERO
    elapsed_s = 0.0 if ended_at is None else (ended_at - last.asked_at).total_seconds()
    elapsed_hours = Decimal(str(elapsed_s)) / Decimal(SECONDS_PER_HOUR)
    return rate * (max(ZERO, elapsed_hours - paid_hours) + CONTROLLER_IDLE_HOURS)


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
            waited_usd=_usd(said.get("waited_usd")),
            step=said.get("step"),
            projected_usd=_usd((said.get("projection") or {}).get("total_usd")),
            command_s=said.get("command_s"),
            command_share=_command_share(said),
            attempt_usd=_usd(said.get("usd")),
            usd_per_hour=_usd(said.get("usd_per_hour")),
            paid_s=_paid_s(said),
        )
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
        return None


def _command_share(said: dict[str, Any]) -> float | None:
    command_s, paid_s = said.get("command_s"), _paid_s(said)
    if command_s is None or paid_s is None:
        return None
    return max(0.0, min(1.0, command_s / paid_s))


def _paid_s(said: dict[str, Any]) -> float | None:
    began_s, seen_s = said.get("began_at_s"), said.get("seen_at_s")
    return None if began_s is None or seen_s is None or seen_s <= began_s else seen_s - began_s


def _usd(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value))
