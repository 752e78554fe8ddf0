"""An engine that keeps its machines in memory, on a clock of its own, and can fail or be cut off.

Every call takes time, so that machines cost something; `billed_usd` is what a cloud would bill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

import yaml

from gpuplan.launcher.lifecycle.engine import (
    Cluster,
    ClusterStatus,
    EngineError,
    EngineJob,
    EngineRequest,
    JobStatus,
    NoCapacityError,
    Past,
)
from gpuplan.launcher.store.launch_record import EngineAddress

CALL_S = 7
START = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


class Killed(BaseException):
    """The command died here, as by kill -9: nothing after it is run."""


@dataclass
class Clock:
    """Time that passes only when something is done."""

    now: datetime = START

    def __call__(self) -> datetime:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class Machines:
    """A cluster's machines, in the cloud's own books."""

    name: str
    began_at: datetime
    usd_per_hour: Decimal
    ended_at: datetime | None = None


@dataclass
class FakeEngine:
    """See the module; `places` is where machines are to be had, in the order of the task."""

    clock: Clock
    usd_per_hour: Decimal = Decimal(36)
    at: EngineAddress | None = None
    """Which SkyPilot it is; None: unknown, as to a version that did not keep it."""
    no_capacity: bool = False
    log_breaks: int = 0
    """How often a log that is followed breaks off from now on."""
    wait_breaks: int = 0
    """How often the wait for machines breaks off from now on; their request goes on."""
    silent: bool = False
    """Whether the machines answer nothing, though the cloud lists them."""
    partial_s: float = 0.0
    """For how long all nodes but one are up, and paid, in a start that ends without capacity."""
    tears_down_failed: bool = False
    """Whether machines of a failed start are torn down by the engine itself, before it says so."""
    breaks_while_starting: bool = False
    cut: Callable[[str], None] = lambda _call: None
    """Called before ("launch") and after ("launch done") every call; may raise `Killed`."""
    leaves_results: bool = True
    """Whether jobs leave a folder of results."""
    log: str = "step 1\n"
    copied: list[Path] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    books: list[Machines] = field(default_factory=list)
    history: list[Past] = field(default_factory=list)
    """The clusters that are gone, newest first; a test may let them be forgotten."""
    secrets: dict[str, str] = field(default_factory=dict)
    tasks: list[dict[str, Any]] = field(default_factory=list)
    _requests: dict[str, EngineRequest] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _clusters: dict[str, Cluster] = field(default_factory=dict)
    _jobs: dict[str, list[EngineJob]] = field(default_factory=dict)
    _managed: list[EngineJob] = field(default_factory=list)

    # --- what a test does to the world ---

    def end_job(self, name: str, status: JobStatus = "succeeded") -> None:
        """Let the newest job of a cluster, or a managed job, end."""
        if name in self._jobs:
            first, *rest = self._jobs[name]
            self._jobs[name] = [replace(first, status=status, ended_at=self.clock()), *rest]
        self._managed = [
            replace(job, status=status, ended_at=self.clock())
            if job.name == name and job.ended_at is None
            else job
            for job in self._managed
        ]
        if any(job.name == name for job in self._managed):
            self._close(name)

    def set_up(self, name: str, seconds: float) -> None:
        """Let machines of a managed job be set up, after which SkyPilot says it started."""
        self.clock.pass_s(seconds)
        self._managed = [
            replace(job, started_at=self.clock()) if job.name == name else job
            for job in self._managed
        ]

    def cancelling(self, name: str) -> None:
        """Let a managed job be cancelled while its machines are not gone yet."""
        self._managed = [
            replace(job, is_ending=True) if job.name == name else job for job in self._managed
        ]

    def preempt(self, name: str) -> None:
        """Let the cloud take the machines of a managed job, and have no others."""
        self._close(name)
        self._managed = [
            replace(job, status="recovering", recoveries=job.recoveries + 1)
            if job.name == name
            else job
            for job in self._managed
        ]

    def time_job(self, name: str, started_at: datetime, ended_at: datetime) -> None:
        """Let the machines say from when to when the newest job of a cluster ran."""
        first, *rest = self._jobs[name]
        self._jobs[name] = [replace(first, started_at=started_at, ended_at=ended_at), *rest]

    def add_job(self, name: str, job: EngineJob) -> None:
        """Let somebody else give the machines of a cluster something to do."""
        self._jobs[name].insert(0, job)

    def take_machines(self, name: str) -> None:
        """Let the cloud take the machines of a cluster away."""
        self._close(name)
        cluster = self._clusters.pop(name, None)
        if cluster is not None:
            self.history.insert(0, Past(cluster=cluster, ended_at=self.clock()))

    def set_job_status(self, name: str, status: JobStatus) -> None:
        """Let the newest job of a cluster be so; it waits while its machines are set up."""
        first, *rest = self._jobs[name]
        self._jobs[name] = [replace(first, status=status), *rest]

    def set_status(self, name: str, status: ClusterStatus) -> None:
        """Let the engine see the machines of a cluster so, whatever runs on them."""
        self._clusters[name] = replace(self._clusters[name], status=status)

    def add_stray(
        self, name: str, run: str | None, *, store_id: str | None = None, owner: str | None = None
    ) -> None:
        """Add a cluster that no open launch owns, with the labels of a launch."""
        self._clusters[name] = self._new_cluster(name, run=run, store_id=store_id, owner=owner)

    def forget_managed(self) -> None:
        """Let the controller of managed jobs be torn down; a new one counts its jobs from one."""
        self._managed = []

    def forget_requests(self) -> None:
        """Let the server know of no request any more, as a day later or after a restart."""
        self._requests, self._names = {}, {}

    def forget_jobs(self, name: str) -> None:
        """Let the machines of a cluster have no job."""
        self._jobs[name] = []

    def finish_requests(self) -> None:
        """Let the server do what it was asked, though nobody waits for it."""
        for request_id, request in list(self._requests.items()):
            if request.status == "running":
                self._fulfil(request_id)

    def billed_usd(self) -> Decimal:
        """Return what the cloud bills until now, to the second."""
        return sum(
            (
                Decimal(str(((one.ended_at or self.clock()) - one.began_at).total_seconds()))
                * one.usd_per_hour
                / 3600
                for one in self.books
            ),
            Decimal(0),
        )

    def live(self) -> list[str]:
        """Return the names of the machines that are paid for now."""
        return [one.name for one in self.books if one.ended_at is None]

    # --- the engine ---

    def ready(self) -> None:
        """Do nothing."""

    def address(self) -> EngineAddress | None:
        return self.at

    def launch(self, task: Path, cluster: str, secrets: Mapping[str, str]) -> str:
        return self._ask("launch", task, cluster, secrets)

    def launch_managed(self, task: Path, name: str, secrets: Mapping[str, str]) -> str:
        return self._ask("launch_managed", task, name, secrets)

    def wait_launched(self, request_id: str, out: TextIO | None) -> int:
        with self._call("wait_launched"):
            self._break_off()
            self._fulfil(request_id)
            name = self._names[request_id]
            if self._requests[request_id].status == "cancelled":
                raise EngineError("the request was cancelled")
            if self.no_capacity:
                raise NoCapacityError("no capacity anywhere")
            if self.breaks_while_starting:
                raise EngineError("the setup of a machine failed")
            return self._jobs[name][0].job_id

    def wait_managed(self, request_id: str, out: TextIO | None) -> int:
        with self._call("wait_managed"):
            self._break_off()
            self._fulfil(request_id)
            return self._managed[0].job_id

    def requests(self, cluster: str) -> list[EngineRequest]:
        with self._call("requests"):
            found = [self._requests[one] for one, name in self._names.items() if name == cluster]
            return sorted(found, key=lambda one: one.asked_at, reverse=True)

    def cancel_request(self, request_id: str) -> None:
        with self._call("cancel_request"):
            request = self._requests[request_id]
            if request.status == "running":
                self._requests[request_id] = replace(request, status="cancelled")

    def cluster(self, name: str, *, refresh: bool = True) -> Cluster | None:
        with self._call("cluster"):
            return self._clusters.get(name)

    def clusters(self) -> list[Cluster]:
        with self._call("clusters"):
            return list(self._clusters.values())

    def past(self, name: str) -> list[Past]:
        with self._call("past"):
            return [one for one in self.history if one.cluster.name == name]

    def jobs(self, cluster: str) -> list[EngineJob]:
        with self._call("jobs"):
            self._answer()
            return list(self._jobs.get(cluster, []))

    def tail(
        self, cluster: str, job_id: int, out: TextIO, *, follow: bool, lines: int = 0
    ) -> JobStatus | None:
        with self._call("tail"):
            if follow and self.log_breaks > 0:
                self.log_breaks -= 1
                raise EngineError("the connection was lost")
            if follow and self._jobs[cluster][0].status == "running":
                self.clock.pass_s(600)
                self.end_job(cluster)
            out.write(self.log)
            return self._jobs[cluster][0].status

    def tail_managed(self, job_id: int, out: TextIO, *, follow: bool, lines: int = 0) -> None:
        with self._call("tail_managed"):
            job = next(one for one in self._managed if one.job_id == job_id)
            if follow and job.status == "running":
                self.clock.pass_s(600)
                self.end_job(str(job.name))
            out.write(self.log)

    def execute(self, cluster: str, command: str) -> None:
        with self._call("execute"):
            self._answer()
            if cluster not in self._clusters:
                raise EngineError("there are no such machines")
            self.commands.append(command)
            self.end_job(cluster)

    def copy_back(self, cluster: str, source: str, target: Path) -> bool:
        with self._call("copy_back"):
            self._answer()
            assert cluster in self._clusters, "results of machines that are gone"
            self.copied.append(target)
            return self.leaves_results

    def cancel(self, cluster: str, job_id: int) -> None:
        with self._call("cancel"):
            self.end_job(cluster, "cancelled")

    def down(self, cluster: str) -> None:
        with self._call("down"):
            self.take_machines(cluster)

    def managed_jobs(self) -> list[EngineJob]:
        with self._call("managed_jobs"):
            return list(self._managed)

    def cancel_managed(self, job_id: int, *, gracefully: bool) -> None:
        with self._call("cancel_managed"):
            for job in self._managed:
                if job.job_id == job_id:
                    self.end_job(str(job.name), "cancelled")

    # --- inside ---

    def _call(self, name: str) -> _Call:
        return _Call(self, name)

    def _ask(self, call: str, task: Path, name: str, secrets: Mapping[str, str]) -> str:
        with self._call(call):
            self.tasks.extend(yaml.safe_load_all(task.read_text(encoding="utf-8")))
            self.secrets.update(secrets)
            request_id = f"request-{len(self._requests) + 1}"
            self._names[request_id] = name
            self._requests[request_id] = EngineRequest(
                request_id=request_id, status="running", asked_at=self.clock()
            )
            return request_id

    def _break_off(self) -> None:
        if self.wait_breaks > 0:
            self.wait_breaks -= 1
            raise EngineError("the connection was lost")

    def _answer(self) -> None:
        if self.silent:
            raise EngineError("the machine does not answer")

    def _fulfil(self, request_id: str) -> None:
        request, name = self._requests[request_id], self._names[request_id]
        if request.status != "running":
            return
        if self.no_capacity:
            self._fail(request_id)
            return
        self._requests[request_id] = replace(request, status="succeeded")
        is_managed = bool(self.tasks[-1]["resources"].get("use_spot"))
        self.clock.pass_s(90)
        job = EngineJob(
            job_id=len(self._jobs) + len(self._managed) + 1,
            status="running",
            name=name,
            started_at=self.clock(),
        )
        if is_managed:
            self._book(name)
            self._managed.insert(0, job)
            return
        if name not in self._clusters:
            labels = self.tasks[-1]["resources"]["labels"]
            self._clusters[name] = self._new_cluster(
                name,
                run=labels["gpuplan-run"],
                store_id=labels.get("gpuplan-store"),
                owner=labels.get("gpuplan-owner"),
            )
        if self.breaks_while_starting:
            if self.tears_down_failed:
                self.clock.pass_s(300)
                self.take_machines(name)
            self._requests[request_id] = replace(request, status="failed", ended_at=self.clock())
            return
        self._jobs.setdefault(name, []).insert(0, job)

    def _fail(self, request_id: str) -> None:
        """Let a start end without capacity, with the nodes that were there until then paid."""
        name, nodes = self._names[request_id], int(self.tasks[-1]["num_nodes"])
        if self.partial_s and nodes > 1:
            machines = Machines(name, self.clock(), (nodes - 1) * self.usd_per_hour / nodes)
            self.clock.pass_s(self.partial_s)
            machines.ended_at = self.clock()
            self.books.append(machines)
        self._requests[request_id] = replace(
            self._requests[request_id], status="failed", ended_at=self.clock()
        )

    def _new_cluster(
        self, name: str, *, run: str | None, store_id: str | None, owner: str | None
    ) -> Cluster:
        self._book(name)
        return Cluster(
            name=name,
            status="up",
            launched_at=self.clock(),
            infra="aws/us-east-1/us-east-1a",
            instance_type="p4d.24xlarge",
            is_spot=False,
            nodes=1,
            usd_per_hour=self.usd_per_hour,
            run=run,
            store_id=store_id,
            owner=owner,
        )

    def _book(self, name: str) -> None:
        assert name not in self.live(), f"{name} was launched twice"
        self.books.append(Machines(name, self.clock(), self.usd_per_hour))

    def _close(self, name: str) -> None:
        for one in self.books:
            if one.name == name and one.ended_at is None:
                one.ended_at = self.clock()


class _Call:
    """One call: it takes time, and may be cut off before or after it does something."""

    def __init__(self, engine: FakeEngine, name: str) -> None:
        self._engine = engine
        self._name = name

    def __enter__(self) -> None:
        self._engine.cut(self._name)
        self._engine.clock.pass_s(CALL_S)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._engine.cut(f"{self._name} done")
