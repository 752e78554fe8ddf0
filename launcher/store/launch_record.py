"""What is kept of a launch: what was meant, what was asked of the engine, what it came to."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from ...catalog.frozen import FrozenModel, Usd
from ..uptime import Uptime

State = Literal["intended", "requested", "running", "ended"]
"""Kept before anything is asked; asked of the engine; its machines are paid for; all is gone."""
Outcome = Literal[
    "succeeded", "failed", "stopped", "guarded", "no-capacity", "cancelled", "preempted", "lost"
]
"""Guarded: the guard ended it for a limit or its projection. Cancelled: nothing was rented. Lost:
the machines went, and the end of the job was not observed."""


Bound = Literal["most", "least", "unknown"]
"""What dollars are that are not exactly what was paid; unknown: some parts are the most, others the
least."""
BOUNDS: Mapping[Bound | None, str] = {
    None: "",
    "most": "at most ",
    "least": "at least ",
    "unknown": "about ",
}
MARKS: Mapping[Bound | None, str] = {None: "", "most": "≤ ", "least": "≥ ", "unknown": "? "}
"""As a table has them before the dollars."""


def bound(*, is_most: bool, is_least: bool) -> Bound | None:
    """Return what a sum is of which parts are the most, or the least, that they can have cost."""
    if is_most and is_least:
        return "unknown"
    return "most" if is_most else "least" if is_least else None


class PricedPlace(FrozenModel):
    """A place where a launch is tried, and what one node costs there."""

    infra: str
    """As SkyPilot names it: `aws/us-east-1`."""
    usd_per_hour: Usd
    """With the tax of the user's pricebook, as it is counted."""
    spot: bool = False


class EngineAddress(FrozenModel):
    """Which SkyPilot was asked: another one knows nothing of its machines. None: not known."""

    server: str | None = None
    """URL of its API server, without a password."""
    home: str | None = None
    """The folder that holds what it knows, where its server is of this machine."""
    user: str | None = None
    """The hash by which it tells its users apart."""


class Attempt(FrozenModel):
    """One time that machines were asked for."""

    number: int
    spot: bool
    asked_at: datetime
    asked_uptime: Uptime | None = None
    """The same moment, by a count that stays right where the clock is set."""
    engine: EngineAddress | None = None
    """The SkyPilot that was asked; None in records of versions that did not keep it."""
    request_id: str | None = None
    """Id that the engine gave; None until it has answered."""
    job_id: int | None = None
    infra: str | None = None
    instance_type: str | None = None
    usd_per_hour: Usd | None = None
    """All nodes; None where nothing was rented."""
    began_at: datetime | None = None
    """Time from which the machines are paid for; None where nothing was rented."""
    ended_at: datetime | None = None
    """When they were seen to be gone."""
    is_bound: bool = False
    """Whether they may have been gone earlier: the dollars are then the most it can have cost."""
    counted_usd: Usd | None = None
    """As the guard on the machines counted, where the engine changed them in between."""
    command_usd: Usd | None = None
    """Of its cost, that of the time in which its command ran; the rest is start, set-up and the
    time until its machines were gone. None where that is not known."""
    preemptions: int = 0
    """Recoveries that the engine made by itself."""
    outcome: Outcome | None = None
    guard_why: str | None = None
    """What its guard ended it for, in a word; None where it did not, or that is not known."""
    unknown_from: datetime | None = None
    """From when on nobody knows what its machines did, as the SkyPilot that was asked is gone for
    good; `ended_at` is then when the user closed it. Its dollars are those until then: the least
    that it cost. None: it is known."""
    are_results_here: bool | None = None
    """Whether its results were brought to the folder of `fetch`; None where they need not be, it
    has not ended, or in records of versions that did not keep it."""
    seen: Outcome | None = None
    """How its job was seen to end, kept before its machines are torn down; None: it was not."""
    trained: bool | None = None
    """Whether it did a step; None where that is not known, as of a script of the user's own."""

    def until(self, now: datetime) -> datetime:
        """Return until when it is counted: its end, what was last known of it, or now."""
        return self.unknown_from or self.ended_at or now

    @property
    def bound(self) -> Bound | None:
        """Return what its dollars are; None where they are what it cost."""
        return bound(is_most=self.is_bound, is_least=self.unknown_from is not None)


class LaunchRecord(FrozenModel):
    """A launch. Its attempts are in the order in which they were made."""

    run: str
    state: State = "intended"
    outcome: Outcome | None = None
    why: str | None = None
    """One sentence on how it ended."""
    guard_why: str | None = None
    """What its guard ended it for, in a word; None where it did not."""
    created_at: datetime
    plan: str
    """Its id."""
    title: str
    """The plan in a line."""
    model: str | None
    project: str
    project_file: str | None = None
    """The project's file that it was launched for, absolute; None where there was none."""
    owner: str
    user: str | None = None
    """Who launched it, as that machine names its user, whatever owner was given; None in records of
    versions that did not keep it."""
    folder: str
    """Local and absolute: the task and what it sends."""
    cluster: str
    accelerator: str | None = None
    """As the catalogue names what the plan is for."""
    accelerators: int | None = None
    """Of all nodes together; None in records of versions that did not keep it."""
    provider: str | None = None
    """As the catalogue names it; None in records of versions that did not keep it."""
    workload: str | None = None
    """What tells one model, with its params, from another (`measured_steps.py`)."""
    plan_key: str | None = None
    """What tells one plan's step from another's (`planner/predict/measured/known_runs.py`)."""
    managed: bool
    """Whether the engine recovers the job by itself (spot machines)."""
    controller_usd_per_hour: Usd | None = None
    """The engine's controller of such a job, with its tax; None where none is paid for."""
    nodes: int
    secrets: tuple[str, ...] = ()
    """Names."""
    places: tuple[PricedPlace, ...]
    usd_expected: Usd | None
    usd_low: Usd | None
    usd_high: Usd | None
    usd_worst: Usd | None
    reserved_usd: Usd | None
    """What limits count while it is open; None where the worst case is not known."""
    term_usd: Usd | None = None
    """The term that was to be signed for it, of which its dollars are hours; None without one."""
    max_hourly_cost_usd: Usd | None = None
    """What its machines may cost an hour, before tax, whenever they are rented; None: anything, and
    in records of versions that did not keep it."""
    billing_increment_s: float | None = None
    minimum_s: float | None = None
    fetch: str | None = None
    """A local folder to which results are brought before the machines go."""
    idle_minutes: int | None = None
    """Idle time after its job until SkyPilot tears down its machines, if no command does; None
    where nothing does, and in records of versions that did not keep it."""
    results: str
    """Where the user finds the results."""
    out_dir: str
    """On the first node, below its home or absolute."""
    pid: int
    """Process of the command that launches it, on `host`."""
    host: str
    attempts: tuple[Attempt, ...] = ()

    @property
    def last(self) -> Attempt | None:
        """Return the newest attempt."""
        return self.attempts[-1] if self.attempts else None

    @property
    def is_open(self) -> bool:
        """Return whether it may still cost money."""
        return self.state != "ended"

    @property
    def is_unknown(self) -> bool:
        """Return whether nobody knows what became of machines of it."""
        return any(one.unknown_from is not None for one in self.attempts)

    @property
    def bound(self) -> Bound | None:
        """Return what the dollars of all attempts are; None where they are what it cost."""
        is_most = any(one.is_bound for one in self.attempts)
        return bound(is_most=is_most, is_least=self.is_unknown)

    def with_last(self, **changes: object) -> LaunchRecord:
        """Return the record with its newest attempt changed."""
        *earlier, last = self.attempts
        changed = last.model_copy(update=changes)
        return self.model_copy(update={"attempts": (*earlier, changed)})
