"""The account of machines that were torn down though no launch of this store owned them for sure.

They count as a launch of their own, that has ended: of the run on their label, if the store keeps
it, else of nobody. Their dollars are the most that they can have cost.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from ....catalog.snapshot import load_catalogue
from ...store.launch_record import Attempt, LaunchRecord, PricedPlace
from ..context import LaunchContext
from .discrepancy import Discrepancy, LabelledMachine

NOBODY = "unattributed"
"""Project and owner of machines that carry neither."""


def count_unattributed(
    context: LaunchContext, found: Discrepancy, record: LaunchRecord | None
) -> None:
    """Keep what machines cost, as a launch of their own; say so where that is not known.

    Args:
        context: the world.
        found: the machines, which are gone now.
        record: the launch whose run their label names; None where the store has none.
    """
    now = context.now()
    nodes, usd_per_hour = _rate(found, record)
    if usd_per_hour is None or found.since is None:
        missing = "their price" if usd_per_hour is None else "since when they ran"
        context.tell(f"{found.text}: what they cost is in no account, as {missing} is not known")
        return
    since = min(found.since, now)
    context.ledger.keep_ended(
        _record(found, record, nodes, usd_per_hour, since=since, now=now),
        what="torn down: machines that no launch of this store owned for sure",
    )


def _record(
    found: Discrepancy,
    record: LaunchRecord | None,
    nodes: int,
    usd_per_hour: Decimal,
    *,
    since: datetime,
    now: datetime,
) -> LaunchRecord:
    infra = _infra(found)
    name = found.run or found.cluster or NOBODY
    first = found.instances[0] if found.instances else None
    attempt = Attempt(
        number=1,
        spot=False,
        asked_at=since,
        infra=infra,
        instance_type=None if first is None else first.instance_type,
        usd_per_hour=usd_per_hour,
        began_at=since,
        ended_at=now,
        is_bound=True,
        outcome="stopped",
    )
    return LaunchRecord(
        run=f"{name}-{NOBODY}-{now:%Y%m%d%H%M%S}-{_mark(found)}",
        state="ended",
        outcome="stopped",
        why="machines that no launch of this store owned for sure were torn down",
        created_at=since,
        plan="" if record is None else record.plan,
        title=found.text,
        model=None,
        project=NOBODY if record is None else record.project,
        project_file=None if record is None else record.project_file,
        owner=found.owner or (NOBODY if record is None else record.owner),
        folder="",
        cluster=f"{found.cluster or name}-{NOBODY}",
        provider=None if infra is None else infra.partition("/")[0],
        managed=False,
        nodes=nodes,
        places=(PricedPlace(infra=infra or "", usd_per_hour=usd_per_hour / nodes),),
        usd_expected=None,
        usd_low=None,
        usd_high=None,
        usd_worst=None,
        reserved_usd=None,
        results="",
        out_dir="",
        pid=0,
        host="",
        attempts=(attempt,),
    )


def _mark(found: Discrepancy) -> str:
    """Return what tells these machines from others that are torn down in the same second."""
    return found.instances[0].instance_id if found.instances else str(found.cluster)


def _infra(found: Discrepancy) -> str | None:
    if not found.instances:
        return found.infra
    first = found.instances[0]
    return f"{first.cloud}/{first.region}"


def _rate(found: Discrepancy, record: LaunchRecord | None) -> tuple[int, Decimal | None]:
    """Return how many machines there were, and what all cost an hour; None where not known."""
    if not found.instances:
        return 1 if record is None else record.nodes, found.usd_per_hour
    prices = [_on_demand_usd(one, record) for one in found.instances]
    known = [one for one in prices if one is not None]
    return len(prices), sum(known, Decimal(0)) if len(known) == len(prices) else None


def _on_demand_usd(machine: LabelledMachine, record: LaunchRecord | None) -> Decimal | None:
    """Return what a machine costs an hour on demand, which a spot machine does not cost more than.

    That which the launch was planned with, else the catalogue's.
    """
    there = [machine.cloud, machine.region]
    planned = [
        one.usd_per_hour
        for one in (() if record is None else record.places)
        if one.infra.split("/")[:2] == there and not one.spot
    ]
    if planned:
        return max(planned)
    offers = [
        one.on_demand_usd_per_hour
        for one in load_catalogue(None).offers
        if (one.provider, one.region, one.instance_type)
        == (machine.cloud, machine.region, machine.instance_type)
    ]
    return max((one for one in offers if one is not None), default=None)
