"""How a job ended, and what its launch keeps of that: pure but for what it tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from ...store.accounting import ZERO
from ...store.launch_record import LaunchRecord, Outcome
from ..engine import ENDED, EngineJob
from ..machines import Changes
from .guard_report import (
    GuardReport,
    command_usd,
    controller_usd,
    counted_s,
    lacks_results,
    managed_usd,
)

SIGNAL = "signal"
"""The guard's word for an end that came from outside."""
UNASKED = "no machine was ever asked for, and SkyPilot's controller alone is counted"


def without_machines(record: LaunchRecord, job: EngineJob | None, *, now: datetime) -> Changes:
    """Return what an attempt keeps of a managed job that never had a machine.

    {} of any other: machines may have come and gone unseen.
    """
    if job is None or not job.is_unasked or job.status not in ENDED:
        return {}
    usd = controller_usd(record, until=max(job.ended_at or now, _asked_at(record) or now))
    return {
        "usd_per_hour": None,
        "began_at": None,
        "ended_at": None,
        "is_bound": False,
        "counted_usd": usd,
        "command_usd": ZERO,
    }


def _asked_at(record: LaunchRecord) -> datetime | None:
    return None if record.last is None else record.last.asked_at


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """The newest job of a launch, once it has ended."""

    record: LaunchRecord
    job: EngineJob
    log: str
    """Empty where it is gone."""
    word: GuardReport | None
    """Of its guard; None where it left none."""

    @property
    def guard_why(self) -> str | None:
        """Return what the guard ended it for, in a word."""
        return None if self.word is None else self.word.why

    def outcome(self, *, has_left: bool | None, is_told: bool) -> tuple[Outcome, str]:
        """Return how it ended, and one sentence on it.

        Args:
            has_left: whether it had results to fetch; None where they were not fetched.
            is_told: whether it was told to stop.
        """
        outcome, why = self._said(is_told=is_told)
        if self.record.fetch is not None and not has_left:
            why += "; it left no results" if has_left is False else "; its results were not brought"
        if self.job.may_leave_machines:
            why += (
                "; SkyPilot's controller failed, which may have left its machines on: look with"
                " `gpuplan reconcile` and in the console of their cloud"
            )
        if lacks_results(self.log):
            outcome = "failed" if outcome == "succeeded" else outcome
            why += (
                " Its last results did not all arrive in their bucket;"
                f" `gpuplan resume {self.record.run}` goes on from the newest checkpoint that did."
            )
        return outcome, why

    def facts(self, *, now: datetime, tell: Callable[[str], None]) -> Changes:
        """Return what the attempt keeps of it, once its machines are gone.

        Args:
            now: by the clock here.
            tell: called where that clock cannot be right.
        """
        unasked = without_machines(self.record, self.job, now=now)
        if unasked:
            return {"trained": False, **unasked}
        return {
            "guard_why": self.guard_why,
            "trained": self._trained(),
            "command_usd": command_usd(self.record, self.job, self.word),
            **(self._managed_times(now) if self.record.managed else self._times(now, tell)),
        }

    def _said(self, *, is_told: bool) -> tuple[Outcome, str]:
        if self.word is not None and self.word.why == SIGNAL and self.job.status == "cancelled":
            # Its guard cannot tell who sent the signal, and the engine can.
            return "stopped", "the job was cancelled"
        if self.word is not None:
            return self.word.outcome, self.word.text
        if self.job.status == "succeeded" and is_told:
            return "stopped", "it was told to stop; its guard's report could not be read"
        if self.job.status == "succeeded":
            return "succeeded", "the job ended well"
        if self.job.status == "cancelled" and self.job.is_unasked:
            return "cancelled", f"the job was cancelled: {UNASKED}"
        if self.job.status == "cancelled":
            return "stopped", "the job was cancelled"
        why = self.job.why or "the job failed; see its log with `gpuplan logs`"
        return "failed", f"{why}; {UNASKED}" if self.job.is_unasked else why

    def _trained(self) -> bool | None:
        """Return whether it did a step; None of a script of one's own, or without its log.

        A job whose log has no word of the guard ended in its set-up, which runs before it.
        """
        if self.record.workload is None or not self.log:
            return None
        return self.word is not None and bool(self.word.step)

    def _least(self) -> datetime | None:
        """Return until when its machines were paid for at least, by their own count."""
        last = self.record.last
        if last is None or last.began_at is None:
            return None
        return last.began_at + timedelta(seconds=counted_s(self.job, self.word))

    def _times(self, now: datetime, tell: Callable[[str], None]) -> Changes:
        """Return when its machines were gone, where the clock here does not say it.

        It may have been set, or have stood still while a laptop slept.
        """
        least = self._least()
        if least is None or least <= now:
            return {}
        tell(
            f"the clock here says less time than the machines of {self.record.run} counted"
            " themselves, which is what their cost is taken from"
        )
        return {"ended_at": least}

    def _managed_times(self, now: datetime) -> Changes:
        """Return when a job ended that the engine recovers by itself, and what the guard counted.

        Between two machines of it nothing is paid: the guard counts what was paid, and without its
        report the dollars are an upper bound.
        """
        job = self.job
        counted_usd = managed_usd(self.record, job, self.word, now=now)
        # Where the guard counted, hours are those of the job: it may have waited for machines.
        waited = (
            {} if counted_usd is None or job.started_at is None else {"began_at": job.started_at}
        )
        ended_at, least = job.ended_at or now, self._least()
        if least is not None and ended_at < least and not waited:
            # The clock here was set forward before it was asked for: it says the end too.
            ended_at = max(least, now)
        return {
            **waited,
            "ended_at": ended_at,
            "preemptions": job.recoveries,
            "is_bound": counted_usd is None,
            "counted_usd": counted_usd,
        }
