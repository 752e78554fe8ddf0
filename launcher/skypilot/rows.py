"""SkyPilot's records as the values of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from ..labels import OWNER_LABEL, RUN_LABEL, STORE_LABEL
from ..lifecycle.engine import (
    ENDED,
    Cluster,
    ClusterStatus,
    EngineError,
    EngineJob,
    EngineRequest,
    JobStatus,
    Past,
    RequestStatus,
)

SECONDS = 3600
NOT_TOLD = object()
CLUSTER_STATUS: Mapping[str, ClusterStatus] = {
    "INIT": "starting",
    "UP": "up",
    "STOPPED": "stopped",
}
REQUEST_STATUS: Mapping[str, RequestStatus] = {
    "SUCCEEDED": "succeeded",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
}
JOB_STATUS: Mapping[str, JobStatus] = {
    "RUNNING": "running",
    "WINDING_DOWN": "running",
    "RECOVERING": "recovering",
    "SUCCEEDED": "succeeded",
    "CANCELLED": "cancelled",
    "CANCELLING": "running",
}
"""What is not here waits, or has failed where its name says so."""
CONTROLLER_FAILED = "FAILED_CONTROLLER"
"""Of a managed job whose controller ended by a fault of its own (sky/jobs/state.py)."""
JOB_CODE: Mapping[int, JobStatus] = {0: "succeeded", 100: "failed", 103: "cancelled"}
"""SkyPilot's `JobExitCode` of a job that was followed to its end."""


def is_launch(name: str) -> bool:
    """Return whether a request is that of a launch, of a cluster or of a managed job."""
    return name.rpartition(".")[2] == "launch"


def request_of(row: Any) -> EngineRequest:
    """Return a request of `sky.api_status`; one of a status that is not known may still run."""
    return EngineRequest(
        request_id=row.request_id,
        status=REQUEST_STATUS.get(_name(row.status), "running"),
        asked_at=datetime.fromtimestamp(row.created_at, UTC),
        ended_at=moment(getattr(row, "finished_at", None)),
    )


def submitted(job_id: Any) -> int:
    """Return the id of the job that a launch submitted.

    Raises:
        EngineError: it submitted none.
    """
    if job_id is None:
        raise EngineError("SkyPilot started machines and submitted no job.")
    return int(job_id)


def cluster_of(row: Any) -> Cluster:
    """Return a cluster of `sky.status`."""
    handle = row["handle"]
    launched: Any = getattr(handle, "launched_resources", None)
    return Cluster(
        name=row["name"],
        status=CLUSTER_STATUS.get(_name(row["status"]), "starting"),
        launched_at=moment(row["launched_at"]),
        is_managed=bool(row["is_managed"]),
        **_machines(launched, getattr(handle, "launched_nodes", None) or row["nodes"] or 1),
    )


def past_of(row: Any) -> Past | None:
    """Return a cluster of SkyPilot's history; None where it is not known when it was there."""
    spans = [span for span in row["usage_intervals"] or () if span[0]]
    if not spans or spans[-1][1] is None:
        return None
    return Past(
        cluster=Cluster(
            name=row["name"],
            status="stopped",
            launched_at=moment(spans[0][0]),
            **_machines(row["resources"], row["num_nodes"] or 1),
        ),
        ended_at=datetime.fromtimestamp(spans[-1][1], UTC),
    )


def _machines(launched: Any, nodes: int) -> dict[str, Any]:
    """Return what a cluster keeps of the resources that SkyPilot launched."""
    region, zone = getattr(launched, "region", None), getattr(launched, "zone", None)
    cloud = str(getattr(launched, "cloud", "") or "").lower()
    labels = getattr(launched, "labels", None) or {}
    return {
        "infra": "/".join(part for part in (cloud, region, zone) if part) or None,
        "instance_type": getattr(launched, "instance_type", None),
        "is_spot": bool(getattr(launched, "use_spot", False)),
        "nodes": nodes,
        "usd_per_hour": _price(lambda: launched.get_cost(SECONDS) * nodes),
        "run": labels.get(RUN_LABEL),
        "store_id": labels.get(STORE_LABEL),
        "owner": labels.get(OWNER_LABEL),
    }


def _price(cost: Callable[[], float]) -> Decimal | None:
    """Return a price of SkyPilot's catalogue; None where it has none."""
    try:
        return Decimal(str(cost()))
    except Exception:
        return None


def job_status(status: Any) -> JobStatus:
    """Return how a job is doing, of a cluster or a managed one."""
    name = _name(status)
    return "failed" if name.startswith("FAILED") else JOB_STATUS.get(name, "waiting")


def job_of(row: Any) -> EngineJob:
    """Return a job of `sky.queue`."""
    return EngineJob(
        job_id=int(row["job_id"]),
        status=job_status(row["status"]),
        name=row["job_name"],
        started_at=moment(row["start_at"]),
        ended_at=moment(row["end_at"]),
    )


def managed_jobs_of(rows: Iterable[Any]) -> list[EngineJob]:
    """Return managed jobs, newest first; SkyPilot has a row for each task of one."""
    tasks: dict[int, list[Any]] = {}
    for row in rows:
        tasks.setdefault(row["job_id"], []).append(row)
    return [_managed_job(tasks[job_id]) for job_id in sorted(tasks, reverse=True)]


def _managed_job(rows: list[Any]) -> EngineJob:
    """Return one job: as its first task that has not succeeded, else as its last."""
    rows = sorted(rows, key=lambda row: row.get("task_id") or 0)
    now = next((row for row in rows if job_status(row["status"]) != "succeeded"), rows[-1])
    status = job_status(now["status"])
    ends = [row["end_at"] for row in rows if row["end_at"]]
    starts = [row["start_at"] for row in rows if row["start_at"]]
    return EngineJob(
        job_id=now["job_id"],
        status=status,
        name=now["job_name"],
        started_at=moment(min(starts, default=None)),
        ended_at=moment(max(ends, default=None)) if status in ENDED else None,
        recoveries=sum(row["recovery_count"] or 0 for row in rows),
        infra=now["infra"],
        why=now["failure_reason"],
        is_ending=_name(now["status"]) == "CANCELLING",
        is_unasked=all(_is_unasked(row) for row in rows),
        may_leave_machines=_name(now["status"]) == CONTROLLER_FAILED,
    )


def _is_unasked(row: Any) -> bool:
    """Return whether machines were never asked for, for a task of a managed job.

    SkyPilot 0.14 writes when it was submitted as it begins to (`set_starting_async`,
    sky/jobs/state.py). Once it has begun, machines may have come and gone before the job ran, of
    which its rows say nothing. A row without that time says nothing either.
    """
    return row.get("submitted_at", NOT_TOLD) is None and row["start_at"] is None


def _name(status: Any) -> str:
    return str(getattr(status, "value", status))


def moment(seconds: float | None) -> datetime | None:
    """Return a point in time, UTC; SkyPilot writes none as 0 or -1."""
    return datetime.fromtimestamp(seconds, UTC) if seconds and seconds > 0 else None
