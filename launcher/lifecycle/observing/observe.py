"""The state of a launch: its record compared with the engine. Pure except `observe`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...store.launch_record import LaunchRecord
from ..engine import (
    ENDED,
    WITHOUT_MACHINES,
    Cluster,
    Engine,
    EngineError,
    EngineJob,
    EngineRequest,
    NoEngineError,
)
from .elsewhere import refuse_elsewhere
from .launching_process import is_alive

Finding = Literal[
    "nothing",
    "starting",
    "waiting",
    "training",
    "job-ended",
    "never-asked",
    "not-started",
    "broken",
    "unreachable",
    "gone",
]
"""The state of an open launch.

nothing       it has ended, and no machine of it is left
starting      its machines are being requested or started
waiting       its managed job waits for machines or sets them up, first or after an interruption;
              SkyPilot does not tell the two apart
training      its job runs, or is set up
job-ended     its job has ended; the machines may still be there
never-asked   its command died before it requested machines
not-started   machines were requested, and there are neither machines nor a job
broken        there are machines, and no job that could run on them
unreachable   its job was submitted, and its machines do not answer, or are stopped with results on
              their disk: only the user ends those
gone          its machines are gone, and the end of its job was not observed
"""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What the engine has of one launch."""

    cluster: Cluster | None = None
    job: EngineJob | None = None
    """The launch's own job; others may be on its machines."""
    request: EngineRequest | None = None
    """The newest."""
    is_silent: bool = False
    """Whether the machines of `cluster` could not be asked for their jobs."""
    is_launcher_alive: bool = False
    """Whether the command that launched it still runs on this machine."""

    @property
    def is_known(self) -> bool:
        """Return whether the engine has anything of it."""
        return not (self.cluster is None and self.job is None and self.request is None)

    @property
    def has_machines(self) -> bool:
        """Return whether it has machines, or a job for which the engine gets them."""
        return self.cluster is not None or self.job_goes_on

    @property
    def job_goes_on(self) -> bool:
        """Return whether its job has not ended, and is not being ended by the engine."""
        job = self.job
        return job is not None and job.status not in ENDED and not job.is_ending


def observe(record: LaunchRecord, engine: Engine) -> Observed:
    """Ask the engine for everything it has of a launch.

    Raises:
        ElsewhereError: it is open, and was asked of another engine than is reached from here.
    """
    seen = _observed(record, engine)
    if record.is_open:
        refuse_elsewhere(record, engine, is_known=seen.is_known)
    return seen


def _observed(record: LaunchRecord, engine: Engine) -> Observed:
    requests = requests_of(record, engine)
    request = requests[0] if requests else None
    is_starting = request is not None and request.status == "running"
    alive = is_alive(record)
    if record.managed:
        job = job_of(record, engine.managed_jobs())
        # SkyPilot names no cluster in such a request.
        return Observed(job=job, request=request, is_launcher_alive=alive)
    # A cluster that is being started is locked, and asking the cloud would wait for it.
    cluster = engine.cluster(record.cluster, refresh=not is_starting)
    jobs, is_silent = [], False
    if cluster is not None and cluster.status == "up":
        try:
            jobs = engine.jobs(record.cluster)
        except NoEngineError:
            raise
        except EngineError:
            is_silent = True
    return Observed(
        cluster=cluster,
        job=job_of(record, jobs),
        request=request,
        is_silent=is_silent,
        is_launcher_alive=alive,
    )


def goes_on(record: LaunchRecord, engine: Engine) -> bool:
    """Return whether the engine still starts a launch, or its job runs; if nobody knows, it may."""
    try:
        seen = observe(record, engine)
    except EngineError:
        return True
    # Of a job that has ended in the meantime, a later command fetches the results.
    return classify(record, seen) in (
        "starting",
        "waiting",
        "training",
        "job-ended",
        "unreachable",
    )


def requests_of(record: LaunchRecord, engine: Engine) -> list[EngineRequest]:
    """Return the requests of the newest attempt, newest first: a name is used by all of a run."""
    earlier = {one.request_id for one in record.attempts[:-1]}
    return [one for one in engine.requests(record.cluster) if one.request_id not in earlier]


def job_of(record: LaunchRecord, jobs: Sequence[EngineJob]) -> EngineJob | None:
    """Return the job of the newest attempt among those of its cluster or all managed, newest first.

    Others may be there: whoever can reach the machines can give them more to do, and managed jobs
    of earlier attempts are still listed.
    """
    known = None if record.last is None else record.last.job_id
    own = [job for job in jobs if job.name == record.cluster]
    if not record.managed:
        own = [job for job in jobs if job.name in (None, record.cluster)]
    return next(
        (
            job
            for job in own
            if (known is None or job.job_id == known) and not _is_earlier(record, job)
        ),
        None,
    )


def _is_earlier(record: LaunchRecord, job: EngineJob) -> bool:
    """Return whether a managed job is that of an attempt before the newest.

    Its number alone does not tell: a new controller counts from one again.
    """
    last = record.last
    if not record.managed or last is None or job.status not in ENDED:
        return False
    is_known = job.job_id in {one.job_id for one in record.attempts[:-1]}
    return is_known and (job.ended_at is None or job.ended_at <= last.asked_at)


def classify(record: LaunchRecord, seen: Observed) -> Finding:
    """Return the state of a launch, from its record and what the engine has."""
    if not record.is_open:
        return "broken" if seen.has_machines and not seen.is_launcher_alive else "nothing"
    if seen.job is not None:
        if seen.job.status in ENDED:
            return "job-ended"
        waits = record.managed and seen.job.status in WITHOUT_MACHINES
        return "waiting" if waits else "training"
    if seen.request is not None and seen.request.status == "running":
        return "starting"
    if seen.is_launcher_alive and record.state == "intended":
        return "starting"
    if seen.cluster is not None:
        return "unreachable" if _may_hold_a_job(record, seen, seen.cluster) else "broken"
    if record.state == "intended" and seen.request is None:
        return "never-asked"
    return "gone" if record.state == "running" else "not-started"


def _may_hold_a_job(record: LaunchRecord, seen: Observed, cluster: Cluster) -> bool:
    """Return whether a job may run on machines that do not say so, or has left its results there.

    SkyPilot 0.14 says of machines that the cloud has and it cannot reach over SSH that they start,
    be it their fault or that of the network here.
    """
    # SkyPilot remembers a request for a day, or until its server is started again.
    is_forgotten = record.state == "requested" and seen.request is None
    is_started = seen.request is not None and seen.request.status == "succeeded"
    is_started = is_started or is_forgotten
    if record.state != "running" and not is_started:
        return False
    if cluster.status == "stopped":
        return record.fetch is not None
    return seen.is_silent or cluster.status == "starting"


def silence_text(record: LaunchRecord) -> str:
    """Return what is to be said of a launch whose machines do not answer."""
    last = record.last
    price = last.usd_per_hour if last is not None else None
    costs = "" if price is None else f" They cost ${price:,.2f} an hour."
    return (
        "has machines that do not answer from here, or are stopped with its results: it may train,"
        f" held by its guard and timer.{costs} `gpuplan down {record.run}` ends it, with what its"
        " newest checkpoint does not hold."
    )


def rented(record: LaunchRecord, cluster: Cluster) -> dict[str, object]:
    """Return what an attempt keeps of the machines it got.

    Their price is the one that was planned with, of the place where they are; the engine's own
    only where that place was not planned. They are counted from when they were asked for: a cloud
    bills from their boot, which no engine tells, and SkyPilot's own time is after it.
    """
    last = record.last
    planned = [
        place.usd_per_hour * record.nodes
        for place in record.places
        if _is_in(cluster.infra, place.infra) and place.spot == cluster.is_spot
    ]
    dearest = max(place.usd_per_hour for place in record.places) * record.nodes
    began_at = cluster.launched_at if last is None else last.asked_at
    return {
        "infra": cluster.infra,
        "instance_type": cluster.instance_type,
        "spot": cluster.is_spot,
        "usd_per_hour": planned[0] if planned else cluster.usd_per_hour or dearest,
        "began_at": began_at,
    }


def _is_in(infra: str | None, place: str) -> bool:
    there = (infra or "").replace("kubernetes", "k8s")
    return there == place or there.startswith(f"{place}/")
