"""The engine that rents machines, as the launcher sees it: a few calls with typed answers.

`skypilot/engine.py` is the real one; tests have one that keeps its machines in memory. Times are
UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal, Protocol, TextIO

from ...catalog.errors import GpuplanError, NoFeasiblePlanError
from ..store.launch_record import EngineAddress

ClusterStatus = Literal["starting", "up", "stopped"]
JobStatus = Literal["waiting", "running", "recovering", "succeeded", "failed", "cancelled"]
RequestStatus = Literal["running", "succeeded", "failed", "cancelled"]
CONTROLLER_PREFIX = "sky-jobs-controller-"
"""How SkyPilot 0.14 names the machine from which it runs managed jobs (sky/utils/common.py)."""
ENDED: tuple[JobStatus, ...] = ("succeeded", "failed", "cancelled")
WITHOUT_MACHINES: tuple[JobStatus, ...] = ("waiting", "recovering")
"""Of a managed job: its machines are asked for, or were taken away."""


class EngineError(GpuplanError):
    """SkyPilot, or the cloud behind it, refused or failed."""


class NoEngineError(EngineError):
    """SkyPilot is not installed, or its server cannot be reached."""

    exit_code = 2


class LostTouchError(NoEngineError):
    """The connection to SkyPilot's server broke off, or it gave no answer in time.

    What it was asked it may have done, or still do.
    """


class LostMachineError(EngineError):
    """The connection to a machine broke off, or none was made: another try may succeed."""


class NoAccessError(EngineError):
    """No cloud is enabled, or not the one that is asked for."""

    exit_code = 2


class NoCapacityError(NoFeasiblePlanError):
    """None of the places has such machines now; nothing was rented."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Machines that the engine knows of."""

    name: str
    status: ClusterStatus
    launched_at: datetime | None
    """The earliest time from which they can be billed."""
    infra: str | None
    """`aws/us-east-1/us-east-1a`."""
    instance_type: str | None
    is_spot: bool
    nodes: int
    usd_per_hour: Decimal | None
    """All nodes, as the engine prices them."""
    run: str | None
    """Run id, from the label; None without that label."""
    store_id: str | None = None
    """Id of the store that keeps the run, from the label; None without that label."""
    owner: str | None = None
    """Owner of the run, from the label."""
    is_managed: bool = False

    @property
    def is_controller(self) -> bool:
        """Return whether it is the engine's own machine, which runs managed jobs."""
        return self.name.startswith(CONTROLLER_PREFIX)


@dataclass(frozen=True, kw_only=True)
class Past:
    """A cluster that is gone."""

    cluster: Cluster
    """As it last was; `launched_at` is since when the engine counted it."""
    ended_at: datetime
    """When the engine saw that it was gone, at the latest a minute or so after it went."""


@dataclass(frozen=True, kw_only=True)
class EngineJob:
    """A job on a cluster, or one that the engine recovers by itself."""

    job_id: int
    status: JobStatus
    name: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    recoveries: int = 0
    infra: str | None = None
    why: str | None = None
    """The engine's message about a failure."""
    is_ending: bool = False
    """Whether it was cancelled, and the engine still tears down its machines."""
    may_leave_machines: bool = False
    """Whether it ended by a fault of the engine, which may have left its machines on."""
    is_unasked: bool = False
    """Whether it is known that machines were never asked for, until now, for a managed job."""


@dataclass(frozen=True, kw_only=True)
class EngineRequest:
    """A request to the engine."""

    request_id: str
    status: RequestStatus
    asked_at: datetime
    ended_at: datetime | None = None
    """When the engine was done with it; None while it runs, or where that is not known."""


class Engine(Protocol):
    """The calls to SkyPilot. Every method raises EngineError for what the user must know."""

    def ready(self) -> None:
        """Do nothing, if the engine is installed.

        Raises:
            NoEngineError: it is not.
        """
        ...

    def address(self) -> EngineAddress | None:
        """Return which SkyPilot is asked from here, without asking it; None where not known."""
        ...

    def launch(self, task: Path, cluster: str, secrets: Mapping[str, str]) -> str:
        """Ask for machines and a job on them; return the request's id at once."""
        ...

    def wait_launched(self, request_id: str, out: TextIO | None) -> int:
        """Wait until the job is submitted; return its id.

        Raises:
            NoCapacityError: no place has such machines.
            NoAccessError: the cloud is not enabled.
        """
        ...

    def requests(self, cluster: str) -> list[EngineRequest]:
        """Return the launches of a name that were asked for, newest first."""
        ...

    def cancel_request(self, request_id: str) -> None:
        """End a request that still runs; nothing if it does not."""
        ...

    def cluster(self, name: str, *, refresh: bool = True) -> Cluster | None:
        """Return a cluster as the cloud has it now; None where it is gone."""
        ...

    def clusters(self) -> list[Cluster]:
        """Return all clusters of this user, asking the clouds."""
        ...

    def past(self, name: str) -> list[Past]:
        """Return the clusters of a name that are gone, newest first, as far as it is remembered."""
        ...

    def jobs(self, cluster: str) -> list[EngineJob]:
        """Return the jobs of a cluster, newest first."""
        ...

    def tail(
        self, cluster: str, job_id: int, out: TextIO, *, follow: bool, lines: int = 0
    ) -> JobStatus | None:
        """Write the log of a job; `follow` until it ends, `lines` only the last ones.

        Returns how the job has ended, where it has and the engine says so.
        """
        ...

    def execute(self, cluster: str, command: str) -> None:
        """Run a shell command on the first node, beside the job; return when it is done.

        Raises:
            LostMachineError: the connection broke off.
        """
        ...

    def copy_back(self, cluster: str, source: str, target: Path) -> bool:
        """Copy a folder of the first node into a local one; return whether there is one.

        Raises:
            LostMachineError: the connection broke off.
        """
        ...

    def cancel(self, cluster: str, job_id: int) -> None:
        """End a job."""
        ...

    def down(self, cluster: str) -> None:
        """Tear down all machines of a cluster; nothing if it is gone."""
        ...

    def launch_managed(self, task: Path, name: str, secrets: Mapping[str, str]) -> str:
        """Ask for a job that the engine recovers by itself; return the request's id at once."""
        ...

    def wait_managed(self, request_id: str, out: TextIO | None) -> int:
        """Wait until such a job is submitted; return its id."""
        ...

    def managed_jobs(self) -> list[EngineJob]:
        """Return the jobs that the engine recovers by itself, newest first."""
        ...

    def tail_managed(self, job_id: int, out: TextIO, *, follow: bool, lines: int = 0) -> None:
        """Write the log of such a job."""
        ...

    def cancel_managed(self, job_id: int, *, gracefully: bool) -> None:
        """End such a job and its machines; gracefully: it may write a checkpoint first."""
        ...
