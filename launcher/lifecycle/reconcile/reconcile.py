"""Reconcile the store with the engine and the clouds: find orphaned machines.

A machine is orphaned when no open launch owns it. Finding them changes nothing but the records of
launches. `take_down` tears machines down, and only those of this store unless the user confirms.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache

from ....catalog.errors import GpuplanError, UsageError
from ...labels import slug, this_user
from ...store.launch_record import LaunchRecord
from ...store.launches import OvertakenError
from ..context import LaunchContext
from ..engine import Cluster, EngineError
from ..machines import count_unowned, end_unowned
from ..observing.elsewhere import is_elsewhere
from ..observing.observe import silence_text
from ..resume import reconcile_run
from .discrepancy import LAST, Discrepancy, Kind, LabelledMachine, Listing, Skipped
from .label_owner import Here, Holder, holder
from .listed import listed_by
from .managed_orphans import managed_orphans
from .unattributed import count_unattributed

Instances = Callable[[], Listing]
AWS = "aws"
OWN_MACHINES = ("k8s", "kubernetes", "slurm", "ssh")
"""Places that no cloud bills, as SkyPilot names them."""


def reconcile(
    context: LaunchContext, *, instances: Instances | None = None, owner: str | None = None
) -> list[Discrepancy]:
    """Bring every open launch up to date, and return what was found.

    Args:
        context: the world.
        instances: lists the machines that carry gpuplan's labels, where credentials allow.
        owner: whose machines may be ended, as `launch --owner`; default: this machine's user,
            with those that they launched for another owner.
    """
    found, closed = _all_brought_up_to_date(context, instances)
    found += [
        Discrepancy(kind="unknown", run=run, text="its record in the store cannot be read")
        for run in context.ledger.unreadable()
    ]
    clusters = context.engine.clusters()
    records = {record.cluster: record for record in context.ledger.all()}
    here = _here(context, records.values(), owner)
    managed = managed_orphans(context, records.values(), clusters, here)
    found += managed.found
    found += [
        _unowned(cluster, records.get(cluster.name), _holder(cluster, here))
        for cluster in clusters
        if (cluster.run is not None or cluster.name in records)
        and not _is_owned(context, cluster, records)
        and not managed.has(cluster)
    ]
    found += [_controller(cluster) for cluster in clusters if cluster.is_controller]
    if instances is not None:
        listing, failed = _listing(instances)
        # Their job is what is ended: SkyPilot would start others in their place.
        beside = [one for one in listing.instances if one.run not in managed.runs]
        found += failed + _unknown_machines(context, beside, clusters, records, here)
        found += [_not_looked_at(one) for one in listing.skipped]
        found += [_not_looked_at(one, kind="unknown") for one in listing.failed]
        found += _known_to_skypilot_alone(records.values(), listing.clouds)
    elsewhere = {slug(one.run) for one in records.values() if is_elsewhere(one, context.engine)}
    found = [_held_back(one, closed, elsewhere) for one in found]
    return sorted(found, key=lambda one: LAST.get(one.kind, 0))


def _here(context: LaunchContext, records: Iterable[LaunchRecord], owner: str | None) -> Here:
    """Return who asks: an owner who is named, or this machine's user with all they launched."""
    user = this_user() if owner is None else None
    known = list(records)
    return Here(
        store_id=context.ledger.known_store_id(),
        owner=slug(owner or this_user()),
        runs={slug(one.run) for one in known},
        launched={slug(one.run) for one in known if user is not None and one.user == user},
    )


def _listing(instances: Instances) -> tuple[Listing, list[Discrepancy]]:
    """Return what the clouds list, and the line that says so where they refuse."""
    try:
        return instances(), []
    except EngineError as error:
        text = f"machines beside SkyPilot's could not be listed: {error.message}"
        return Listing(clouds=(AWS,)), [Discrepancy(kind="unknown", run=None, text=text)]


def _held_back(
    found: Discrepancy, closed: Collection[str], elsewhere: Collection[str]
) -> Discrepancy:
    """Return a line that ends no machines which may still train.

    Args:
        found: the line.
        closed: runs that this very look has closed; if by mistake, their jobs still run.
        elsewhere: runs that were asked of another SkyPilot, which may still start their machines.
    """
    if not found.is_orphan or found.run is None:
        return found
    why = None
    if slug(found.run) in closed:
        why = "its launch was closed just now: look again with `gpuplan reconcile`"
    elif found.cluster is None and slug(found.run) in elsewhere:
        why = "another SkyPilot was asked for them: look from a shell that reaches that one"
    return found if why is None else replace(found, kind="unknown", text=f"{found.text}; {why}")


def take_down(
    context: LaunchContext,
    orphan: Discrepancy,
    *,
    terminate: Callable[[Sequence[LabelledMachine]], None],
    confirmed: bool = False,
) -> None:
    """Tear down orphaned machines, and count what they cost. A second call does nothing.

    Args:
        context: the world.
        orphan: what `reconcile` found.
        terminate: ends machines that only their cloud knows.
        confirmed: whether the user, asked about these machines, confirmed to end unattributed ones.

    Raises:
        UsageError: they are not this store's, or not for sure and not confirmed.
        OvertakenError: their run was launched again since they were found.
    """
    if not (orphan.is_orphan or (orphan.kind == "unattributed" and confirmed)):
        raise UsageError(
            f"{orphan.run or orphan.cluster} is not this store's to end: {orphan.text}.",
            fix="ask its owner"
            if orphan.kind == "others"
            else "look whose it is, then end it by"
            f" hand: {'; '.join(orphan.by_hand) or 'in the console of its cloud'}.",
        )
    known = {slug(one.run): one for one in context.ledger.all()}
    record = None if orphan.run is None else known.get(slug(orphan.run))
    is_its_cluster = record is not None and orphan.cluster == record.cluster
    # Beside the machines of a run that trains there may be some that it does not have.
    if record is not None and record.is_open and (orphan.is_orphan or is_its_cluster):
        raise OvertakenError(record)
    if record is not None and is_its_cluster:
        end_unowned(context, record)
        return
    if orphan.cluster is not None:
        context.engine.down(orphan.cluster)
    if orphan.instances:
        terminate(orphan.instances)
    if record is None or record.is_open:
        count_unattributed(context, orphan, record)
    else:
        count_unowned(context, record, _facts(record, orphan), since=orphan.since)


def _facts(record: LaunchRecord, orphan: Discrepancy) -> dict[str, object]:
    """Return what the account keeps of orphaned machines: their place, and the price of all."""
    first = orphan.instances[0] if orphan.instances else None
    infra = orphan.infra if first is None else f"{first.cloud}/{first.region}"
    prices = [one.usd_per_hour for one in record.places if one.infra.startswith(infra or "")]
    dearest = max(prices or [one.usd_per_hour for one in record.places])
    usd_per_hour = dearest * (len(orphan.instances) or record.nodes)
    return {"infra": infra, "usd_per_hour": orphan.usd_per_hour or usd_per_hour}


def _all_brought_up_to_date(
    context: LaunchContext, instances: Instances | None
) -> tuple[list[Discrepancy], set[str]]:
    """Return a line for every open launch, and the runs that are closed by it, as labels are."""
    if instances is not None:
        # Once for all launches that seem to be gone; later they are listed anew.
        once = cache(instances)
        context = replace(context, listed=listed_by(lambda _regions: once()))
    before = context.ledger.open()
    found = [_bring_up_to_date(context, record) for record in before]
    return found, {slug(one.run) for one in before} - {
        slug(one.run) for one in context.ledger.open()
    }


def _bring_up_to_date(context: LaunchContext, record: LaunchRecord) -> Discrepancy:
    try:
        after, finding = reconcile_run(context, record)
    except GpuplanError as error:
        return Discrepancy(
            kind="unknown", run=record.run, text=f"could not be looked at: {error.message}"
        )
    if finding == "unreachable":
        return Discrepancy(kind="unknown", run=record.run, text=silence_text(after))
    if after.is_open:
        text = "is being started" if finding == "starting" else "runs"
        if finding == "waiting":
            text = _waits(after)
        return Discrepancy(kind="running", run=record.run, text=text)
    return Discrepancy(
        kind="settled", run=record.run, text=f"has ended: {after.outcome}, {after.why}"
    )


def _waits(record: LaunchRecord) -> str:
    rate = record.controller_usd_per_hour
    text = "waits for machines or sets them up"
    return text if rate is None else f"{text}; SkyPilot's controller costs ${rate:,.2f} an hour"


def _is_owned(context: LaunchContext, cluster: Cluster, records: dict[str, LaunchRecord]) -> bool:
    record = records.get(cluster.name)
    if record is not None:
        record = context.ledger.get(record.run)  # As it is now, after it was brought up to date.
        return record.is_open
    # SkyPilot names the cluster of a managed job after the job, with its number.
    return any(
        one.is_open and one.managed and cluster.name.startswith(f"{one.cluster}-")
        for one in records.values()
    )


def _unowned(cluster: Cluster, record: LaunchRecord | None, holds: Holder) -> Discrepancy:
    text = _machines(cluster)
    if holds.standing == "own":
        ended = "no open launch" if record is None else f"{record.run}, which has ended"
        text += f"owned by {ended}"
    else:
        text += holds.text
    end = f"sky down {cluster.name}" if record is None else f"gpuplan down {record.run}"
    return Discrepancy(
        kind="orphan-cluster" if holds.standing == "own" else holds.standing,
        run=cluster.run if record is None else record.run,
        cluster=cluster.name,
        text=text,
        usd_per_hour=cluster.usd_per_hour,
        infra=cluster.infra,
        since=cluster.launched_at,
        store_id=cluster.store_id,
        owner=cluster.owner,
        by_hand=(end,) if holds.standing == "unattributed" else (),
    )


def _controller(cluster: Cluster) -> Discrepancy:
    """Return the line on the controller, which carries no launch's labels and is in no sum."""
    stopped = cluster.status == "stopped"
    if stopped:
        cluster = replace(cluster, usd_per_hour=None)
    text = f"{_machines(cluster)}SkyPilot's controller of managed jobs, which launches share"
    text += "; it is stopped, and its disk is billed" if stopped else ""
    return Discrepancy(
        kind="controller",
        run=None,
        cluster=cluster.name,
        text=f"{text}; when no managed job is left, `sky down {cluster.name}` ends it",
        usd_per_hour=cluster.usd_per_hour,
        by_hand=(f"sky down {cluster.name}",),
    )


def _machines(cluster: Cluster) -> str:
    price = "" if cluster.usd_per_hour is None else f", ${cluster.usd_per_hour:,.2f} an hour"
    return f"{cluster.nodes} x {cluster.instance_type} in {cluster.infra}{price}: "


def _unknown_machines(
    context: LaunchContext,
    instances: Sequence[LabelledMachine],
    clusters: Sequence[Cluster],
    records: dict[str, LaunchRecord],
    here: Here,
) -> list[Discrepancy]:
    """Return the machines of a cloud that belong to no cluster and no open launch."""
    known = {slug(one.run) for one in clusters if one.run is not None}
    known |= {slug(one.run) for one in context.ledger.open()}
    known |= {slug(records[one.name].run) for one in clusters if one.name in records}
    together: dict[tuple[str, str | None, str | None], list[LabelledMachine]] = {}
    for one in instances:
        if one.run not in known:
            together.setdefault((one.run, one.store_id, one.owner), []).append(one)
    found = [_unknown_to_engine(machines, here) for machines in together.values()]
    for cluster in clusters:
        record = records.get(cluster.name)
        if record is not None and cluster.status == "up" and cluster.infra is not None:
            own = [one for one in instances if one.run == slug(record.run)]
            found += _left_beside(context.ledger.get(record.run), cluster, own)
    return found


def _left_beside(
    record: LaunchRecord, cluster: Cluster, own: Sequence[LabelledMachine]
) -> list[Discrepancy]:
    """Return machines with the label of a run that trains which its cluster does not have.

    A start that failed in one place and was tried in the next may have left them. No timer runs on
    them, as set-up never did.
    """
    if record.state != "running" or record.managed:
        return []
    home = "/".join((cluster.infra or "").split("/")[:2])
    here = [one for one in own if f"{one.cloud}/{one.region}" == home]
    away = [one for one in own if one not in here and home.startswith(f"{one.cloud}/")]
    found: list[Discrepancy] = []
    if away:
        text = (
            f"{len(away)} x {away[0].instance_type} with the label of a run that trains in {home}"
        )
        found.append(
            Discrepancy(
                kind="unattributed",
                run=record.run,
                instances=tuple(away),
                text=f"{text}: a start that failed there may have left them",
                store_id=away[0].store_id,
                owner=away[0].owner,
                by_hand=_terminations(away),
                since=_since(away),
            )
        )
    if len(here) > cluster.nodes:
        ids = ", ".join(one.instance_id for one in here)
        text = f"{len(here)} machines in {home} carry its label, and it has {cluster.nodes}: {ids}"
        found.append(
            Discrepancy(
                kind="unknown", run=record.run, text=f"{text}; look which of them trains nothing"
            )
        )
    return found


def _unknown_to_engine(machines: Sequence[LabelledMachine], here: Here) -> Discrepancy:
    """Return the line on the machines of one run, of one store and one owner."""
    first = machines[0]
    holds = _holder(first, here)
    text = f"{len(machines)} x {first.instance_type} in {first.cloud}/{first.region}: "
    text += holds.text if holds.text else "SkyPilot does not know them"
    return Discrepancy(
        kind="orphan-instance" if holds.standing == "own" else holds.standing,
        run=first.run,
        instances=tuple(machines),
        text=text,
        since=_since(machines),
        store_id=first.store_id,
        owner=first.owner,
        by_hand=_terminations(machines) if holds.standing == "unattributed" else (),
    )


def _since(machines: Sequence[LabelledMachine]) -> datetime | None:
    """Return from when machines can have cost; None where that of one is not known."""
    since = [one.launched_at for one in machines]
    return None if None in since else min(one for one in since if one is not None)


def _holder(machines: Cluster | LabelledMachine, here: Here) -> Holder:
    return holder(here, run=machines.run, store_id=machines.store_id, owner=machines.owner)


def _terminations(machines: Sequence[LabelledMachine]) -> tuple[str, ...]:
    """Return the commands of AWS's own tool that end machines, one a region."""
    return tuple(
        f"aws ec2 terminate-instances --region {region} --instance-ids "
        + " ".join(one.instance_id for one in machines if one.region == region)
        for region in sorted({one.region for one in machines})
    )


def _not_looked_at(skipped: Skipped, *, kind: Kind = "skipped") -> Discrepancy:
    where = ", ".join(f"{skipped.cloud}/{region}" for region in skipped.regions)
    return Discrepancy(kind=kind, run=None, text=f"not looked at: {where}: {skipped.why}")


def _known_to_skypilot_alone(
    records: Iterable[LaunchRecord], asked: Sequence[str]
) -> list[Discrepancy]:
    """Return a line on the clouds that were not asked what SkyPilot may have forgotten there."""
    infra = {attempt.infra for record in records for attempt in record.attempts if attempt.infra}
    clouds = sorted({one.split("/")[0] for one in infra} - {*asked, *OWN_MACHINES})
    if not clouds:
        return []
    text = (
        f"not looked at beside SkyPilot: {', '.join(clouds)}, where launches of this store ran:"
        " machines that SkyPilot has forgotten are in the provider's console"
    )
    if AWS in clouds:
        text += f' ({AWS} is asked with boto3 and credentials: `pip install "gpuplan[aws]"`)'
    return [Discrepancy(kind="skipped", run=None, text=text)]
