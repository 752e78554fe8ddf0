"""The store beside what the engine and the clouds have: what nobody owns, what nobody knows.

Looking changes nothing but what a launch has become; machines are taken down by `take_down`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

from ..catalog.errors import GpuplanError
from .engine import Cluster
from .launch_record import LaunchRecord
from .lifecycle import Desk
from .picking_up import pick_up
from .request import slug

Kind = Literal["settled", "running", "orphan-cluster", "orphan-instance", "unknown"]
"""A launch that was brought up to date; one that runs as it should; machines that the engine
knows and no open launch owns; machines that only the cloud knows; what could not be looked at."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A machine with gpuplan's labels, as its cloud lists it."""

    cloud: str
    region: str
    instance_id: str
    instance_type: str | None
    run: str
    launched_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Discrepancy:
    """One line of what was found."""

    kind: Kind
    run: str | None
    text: str
    cluster: str | None = None
    instances: tuple[Instance, ...] = ()
    usd_per_hour: Decimal | None = None

    @property
    def is_orphan(self) -> bool:
        """Return whether it costs money and nobody owns it."""
        return self.kind in ("orphan-cluster", "orphan-instance")


Instances = Callable[[], Sequence[Instance]]


def reconcile(desk: Desk, *, instances: Instances | None = None) -> list[Discrepancy]:
    """Bring every open launch up to date, and return what was found.

    Args:
        desk: the world.
        instances: lists the machines that carry gpuplan's labels, where credentials allow.
    """
    found = [_bring_up_to_date(desk, record) for record in desk.ledger.open()]
    clusters = desk.engine.clusters()
    records = {record.cluster: record for record in desk.ledger.all()}
    found += [
        _orphan(cluster, records.get(cluster.name))
        for cluster in clusters
        if (cluster.run is not None or cluster.name in records)
        and not _is_owned(desk, cluster, records)
    ]
    if instances is not None:
        found += _unknown_machines(desk, instances, clusters, records)
    return found


def take_down(
    desk: Desk, orphan: Discrepancy, *, terminate: Callable[[Sequence[Instance]], None]
) -> None:
    """Give back what nobody owns. Doing it twice does nothing the second time."""
    if orphan.cluster is not None:
        desk.engine.down(orphan.cluster)
    if orphan.instances:
        terminate(orphan.instances)


def _bring_up_to_date(desk: Desk, record: LaunchRecord) -> Discrepancy:
    try:
        after, finding = pick_up(desk, record)
    except GpuplanError as error:
        return Discrepancy(
            kind="unknown", run=record.run, text=f"could not be looked at: {error.message}"
        )
    if after.is_open:
        text = "is being started" if finding == "starting" else "runs"
        return Discrepancy(kind="running", run=record.run, text=text)
    return Discrepancy(
        kind="settled", run=record.run, text=f"has ended: {after.outcome}, {after.why}"
    )


def _is_owned(desk: Desk, cluster: Cluster, records: dict[str, LaunchRecord]) -> bool:
    record = records.get(cluster.name)
    if record is not None:
        record = desk.ledger.get(record.run)  # As it is now, after it was brought up to date.
        return record.is_open
    # SkyPilot names the cluster of a managed job after the job, with its number.
    return any(
        one.is_open and one.managed and cluster.name.startswith(f"{one.cluster}-")
        for one in records.values()
    )


def _orphan(cluster: Cluster, record: LaunchRecord | None) -> Discrepancy:
    whose = "no launch of this store" if record is None else f"{record.run}, which has ended"
    price = "" if cluster.usd_per_hour is None else f", ${cluster.usd_per_hour:,.2f} an hour"
    return Discrepancy(
        kind="orphan-cluster",
        run=cluster.run if record is None else record.run,
        cluster=cluster.name,
        text=f"{cluster.nodes} x {cluster.instance_type} in {cluster.infra}{price}: owned by"
        f" {whose}",
        usd_per_hour=cluster.usd_per_hour,
    )


def _unknown_machines(
    desk: Desk,
    instances: Instances,
    clusters: Sequence[Cluster],
    records: dict[str, LaunchRecord],
) -> list[Discrepancy]:
    """Return the machines of a cloud that belong to no cluster and no open launch."""
    known = {slug(one.run) for one in clusters if one.run is not None}
    known |= {slug(one.run) for one in desk.ledger.open()}
    known |= {slug(records[one.name].run) for one in clusters if one.name in records}
    by_run: dict[str, list[Instance]] = {}
    for instance in instances():
        if instance.run not in known:
            by_run.setdefault(instance.run, []).append(instance)
    return [
        Discrepancy(
            kind="orphan-instance",
            run=run,
            instances=tuple(machines),
            text=f"{len(machines)} x {machines[0].instance_type} in {machines[0].cloud}/"
            f"{machines[0].region}: SkyPilot does not know them",
        )
        for run, machines in by_run.items()
    ]
