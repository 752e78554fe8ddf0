"""Whether the user's account can start what is asked for: zones, quota, reservations, blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...catalog.clouds.interface import Asked, Cloud, CloudError
    from ...catalog.listing.capacity import CapacityAnswer, CloudAnswer
    from ...catalog.listing.query import OfferFilter
    from ...catalog.snapshot import Catalogue
    from ...catalog.types import Instance
    from ...catalog.vocabulary import OfferPurchase
    from ...planner.plan.plan import Plan

    Tell = Callable[[str, int | None, int | None], None]

OFFLINE = "not asked (--offline)"


def capacity(
    plan: str | Plan | None = None,
    *,
    accelerator: str | None = None,
    nodes: int = 1,
    providers: Iterable[str] = (),
    regions: Iterable[str] = (),
    purchase: OfferPurchase = "on-demand",
    block_hours: int | None = None,
    offline: bool = False,
    clouds: Mapping[str, Cloud] | None = None,
    now: datetime | None = None,
    on_progress: Tell | None = None,
) -> CapacityAnswer:
    """Return, for each region, whether the account can start so many machines now, and why not.

    Args:
        plan: A kept plan's id or a plan: its machines, in all regions of its provider.
        accelerator: Without a plan: "H100:8" for instances of eight.
        nodes: Without a plan: how many instances.
        providers: aws, gcp, azure; none: all three, or the plan's.
        regions: Only these.
        purchase: How they are bought; a plan's own way where one is given.
        block_hours: Also look for capacity blocks of this length.
        offline: Ask nobody; everything that needs an account is unknown then.
        clouds: By provider, to be asked instead of those of the user's own accounts.
        now: With its time zone; None: the clock's.
        on_progress: Called with what is being done, how much of it is done, and of how much.

    Raises:
        UsageError: Neither or both of plan and accelerator are given, or a name is not known.
    """
    from ...catalog.clouds.connect import CLOUDS
    from ...catalog.listing.capacity import CapacityAnswer, capacity_lines, in_order
    from ...catalog.listing.query import parse_filter
    from ...catalog.prices.refresh import sellers_in, sold_elsewhere
    from ...catalog.snapshot import load_catalogue

    machines = replace(_machines(plan, accelerator, nodes, purchase), block_hours=block_hours)
    catalogue = load_catalogue()
    asked = parse_filter(
        catalogue,
        accelerators=[] if accelerator is None else [accelerator],
        providers=list(providers) or list(machines.types or ()),
        regions=regions,
    )
    moment = now or datetime.now(UTC)
    names = sellers_in(catalogue, sorted(asked.providers) or list(CLOUDS), asked.regions)
    others = asked.providers - set(names)
    unknown = {name: sold_elsewhere(catalogue, name, asked.regions).reason for name in others}
    lines = []
    for name in names:
        instances = machines.sold_by(name, catalogue, asked)
        if not instances:
            continue
        wanted = machines.asked_in(_places(catalogue, name, asked, instances, moment))
        said = _said(name, wanted, clouds, unknown, on_progress, offline=offline)
        lines += capacity_lines(
            catalogue,
            said,
            instances,
            wanted.regions,
            nodes=wanted.nodes,
            purchase=wanted.purchase,
            now=moment,
        )
    return CapacityAnswer(
        asked_at=moment,
        accelerator=machines.accelerator,
        nodes=machines.nodes,
        purchase=machines.purchase,
        price_source=catalogue.price_source,
        lines=in_order(lines),
        providers_unknown=unknown,
    )


@dataclass(frozen=True, kw_only=True)
class _Machines:
    """What is to be started: which machines, how many, and how they are bought."""

    accelerator: str
    nodes: int
    purchase: OfferPurchase
    types: Mapping[str, list[str]] | None = None
    """A plan's instance type, by its provider; None: every one with the accelerator."""
    block_hours: int | None = None
    """Length of the capacity blocks that are looked for too; None: of none."""

    def sold_by(self, name: str, catalogue: Catalogue, asked: OfferFilter) -> dict[str, Instance]:
        """Return a provider's machines among these, by instance type."""
        return {
            kind: row
            for (seller, kind), row in catalogue.instances.items()
            if seller == name and _is_wanted(row, asked.accelerators, self.types)
        }

    def asked_in(self, places: Asked) -> Asked:
        """Return what a provider is asked for these machines, in these places."""
        return replace(
            places, nodes=self.nodes, purchase=self.purchase, block_hours=self.block_hours
        )


def _machines(
    plan: str | Plan | None, accelerator: str | None, nodes: int, purchase: OfferPurchase
) -> _Machines:
    """Return what a plan or a request is for.

    Raises:
        UsageError: Neither or both are given.
    """
    from ...catalog.errors import UsageError

    if plan is not None and accelerator is None:
        return _of_plan(plan)
    if plan is None and accelerator is not None:
        return _Machines(accelerator=accelerator, nodes=nodes, purchase=purchase)
    raise UsageError(
        "Give a plan or --accelerator, one of them.",
        fix="gpuplan capacity PLAN-ID, or gpuplan capacity --accelerator H100:8 --nodes 4.",
    )


def _places(
    catalogue: Catalogue,
    name: str,
    asked: OfferFilter,
    instances: Mapping[str, Instance],
    moment: datetime,
) -> Asked:
    """Return where to ask a provider: in the regions given, else in all that sell the machines."""
    from ...catalog.prices.refresh import asked_of

    wanted = asked_of(catalogue, name, sorted(asked.regions), instances=instances, now=moment)
    if asked.regions:
        return wanted
    return replace(wanted, regions=tuple(sorted({region for region, _ in wanted.known_places})))


def _said(
    name: str,
    wanted: Asked,
    clouds: Mapping[str, Cloud] | None,
    unknown: dict[str, str],
    on_progress: Tell | None,
    *,
    offline: bool,
) -> CloudAnswer:
    """Return what a provider says; where it is not asked, nothing, and why in `unknown`."""
    from ...catalog.clouds.connect import CLOUDS, known_clouds

    if name not in CLOUDS:
        unknown[name] = "it has no quota that gpuplan can ask for"
        return _nothing(name)
    if offline:
        unknown[name] = OFFLINE
        return _nothing(name)
    known_clouds([name])
    return ask_cloud(name, wanted, clouds, unknown, on_progress)


def _of_plan(plan: str | Plan) -> _Machines:
    from ...launcher.store.plan_file import given_plan

    given = given_plan(plan).plan
    offer = given.offer
    return _Machines(
        accelerator=f"{offer.accelerator}:{offer.accelerators_per_node:g}",
        nodes=given.nodes,
        purchase="spot" if offer.purchase == "spot" else "on-demand",
        types={offer.provider: [offer.instance_type]},
    )


def _is_wanted(
    row: Instance, requests: Iterable[object], machines: Mapping[str, list[str]] | None
) -> bool:
    if machines is not None:
        return row.instance_type in machines.get(row.provider, ())
    return not row.is_fractional and any(
        row.accelerator in one.names and one.per_instance in (None, row.accelerators)  # type: ignore[attr-defined]
        for one in requests
    )


def _nothing(name: str) -> CloudAnswer:
    from ...catalog.listing.capacity import CloudAnswer

    return CloudAnswer(provider=name)


def ask_cloud(
    name: str,
    wanted: Asked,
    clouds: Mapping[str, Cloud] | None,
    unknown: dict[str, str],
    on_progress: Tell | None,
) -> CloudAnswer:
    """Return all that one cloud says; where it cannot be asked, nothing, and why in `unknown`."""
    from ...catalog.clouds.asking import one_at_a_time
    from ...catalog.clouds.connect import connect
    from ...catalog.clouds.interface import CloudError

    cloud: Cloud | CloudError = clouds[name] if clouds and name in clouds else connect(name)
    tell = one_at_a_time(on_progress or (lambda _what, _done, _total: None))
    try:
        if isinstance(cloud, CloudError):
            raise cloud
        return _asked_all(cloud, wanted, tell)
    except CloudError as error:
        unknown[name] = error.reason
        return _nothing(name)


def _asked_all(cloud: Cloud, wanted: Asked, tell: Tell) -> CloudAnswer:
    from ...catalog.clouds.asking import begun
    from ...catalog.listing.capacity import CloudAnswer, limit_wanted

    # None of the three waits for another; each asks its regions by itself.
    [availability] = begun([lambda: cloud.availability(wanted, tell)], workers=1)
    [quotas] = begun([lambda: cloud.quota(wanted, tell)], workers=1)
    [reservations] = begun([lambda: cloud.reservations(wanted, tell)], workers=1)
    found = quotas.result()
    return CloudAnswer(
        provider=cloud.name,
        availability=availability.result(),
        quotas=found,
        reservations=reservations.result(),
        commands={
            (one.instance_type, one.region, one.code): cloud.quota_command(
                one, limit_wanted(one, wanted.nodes)
            )
            for one in found.quotas
        },
    )
