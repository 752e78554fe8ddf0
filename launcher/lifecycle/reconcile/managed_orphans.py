"""Managed jobs that go on though their launch has ended.

SkyPilot starts the machines of such a job again when they end, so that only the job can be ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...labels import slug
from ...store.launch_record import LaunchRecord
from ..context import LaunchContext
from ..engine import ENDED, Cluster, EngineError, EngineJob
from ..observing.observe import job_of
from .discrepancy import Discrepancy
from .label_owner import Here, holder


@dataclass(frozen=True, kw_only=True)
class ManagedOrphans:
    """What was found of them."""

    found: tuple[Discrepancy, ...] = ()
    runs: frozenset[str] = frozenset()
    """Of which a job goes on, as labels have them."""
    names: tuple[str, ...] = ()
    """Of those jobs, with which the names of their clusters begin."""

    def has(self, cluster: Cluster) -> bool:
        """Return whether machines are those of such a job."""
        return any(cluster.name.startswith(f"{name}-") for name in self.names)


def managed_orphans(
    context: LaunchContext,
    records: Iterable[LaunchRecord],
    clusters: Sequence[Cluster],
    here: Here,
) -> ManagedOrphans:
    """Return the managed jobs that go on and whose launch has ended.

    Args:
        context: the world.
        records: of the store.
        clusters: that the engine knows. A controller among them that is stopped has no job to do,
            and is not started for this question.
        here: who asks.
    """
    closed = [one for one in records if one.managed and not one.is_open]
    if not closed or any(one.is_controller and one.status == "stopped" for one in clusters):
        return ManagedOrphans()
    try:
        jobs = [one for one in context.engine.managed_jobs() if one.status not in ENDED]
    except EngineError as error:
        text = f"managed jobs could not be listed: {error.message}"
        return ManagedOrphans(found=(Discrepancy(kind="unknown", run=None, text=text),))
    going = [(one, job) for one in closed if (job := job_of(one, jobs)) is not None]
    return ManagedOrphans(
        found=tuple(_line(record, job, here) for record, job in going if not job.is_ending),
        runs=frozenset(slug(record.run) for record, _ in going),
        names=tuple(record.cluster for record, _ in going),
    )


def _line(record: LaunchRecord, job: EngineJob, here: Here) -> Discrepancy:
    owner = slug(record.owner)
    holds = holder(here, run=slug(record.run), store_id=here.store_id, owner=owner)
    text = f"managed job {job.job_id}, whose machines SkyPilot starts again when they end: "
    text += f"owned by {record.run}, which has ended" if holds.standing == "own" else holds.text
    return Discrepancy(
        kind="orphan-cluster" if holds.standing == "own" else holds.standing,
        run=record.run,
        cluster=record.cluster,
        text=text,
        infra=job.infra,
        store_id=here.store_id,
        owner=owner,
    )
