"""Whether the user's account can start what is asked for: zones, quota, reservations, blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..catalog.clouds.interface import Asked, Cloud, CloudError
    from ..catalog.listing.capacity import CapacityAnswer, CloudAnswer
    from ..catalog.types import Instance
    from ..catalog.vocabulary import OfferPurchase
    from ..planner.plan.plan import Plan

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
    from ..catalog.clouds.connect import CLOUDS, known_clouds
    from ..catalog.errors import UsageError
    from ..catalog.listing.capacity import CapacityAnswer, capacity_lines, in_order
    from ..catalog.listing.query import parse_filter
    from ..catalog.prices.refresh import asked_of, sellers_in, sold_elsewhere
    from ..catalog.snapshot import load_catalogue

    if (plan is None) == (accelerator is None):
        raise UsageError(
            "Give a plan or --accelerator, one of them.",
            fix="gpuplan capacity PLAN-ID, or gpuplan capacity --accelerator H100:8 --nodes 4.",
        )
    catalogue = load_catalogue()
    machines: dict[str, list[str]] | None = None
    text = accelerator or ""
    if plan is not None:
        text, nodes, purchase, machines = _of_plan(plan)
    asked = parse_filter(
        catalogue,
        accelerators=[] if accelerator is None else [accelerator],
        providers=list(providers) or list(machines or ()),
        regions=regions,
    )
    moment = now or datetime.now(UTC)
    unknown: dict[str, str] = {}
    lines = []
    meant = sorted(asked.providers) or list(CLOUDS)
    names = sellers_in(catalogue, meant, asked.regions)
    for name in asked.providers - set(names):
        unknown[name] = sold_elsewhere(catalogue, name, asked.regions).reason
    for name in names:
        instances = {
            kind: row
            for (seller, kind), row in catalogue.instances.items()
            if seller == name and _is_wanted(row, asked.accelerators, machines)
        }
        if not instances:
            continue
        wanted = asked_of(catalogue, name, sorted(asked.regions), instances=instances, now=moment)
        if not asked.regions:
            wanted = replace(
                wanted, regions=tuple(sorted({region for region, _ in wanted.known_places}))
            )
        wanted = replace(wanted, nodes=nodes, purchase=purchase, block_hours=block_hours)
        if name not in CLOUDS:
            unknown[name] = "it has no quota that gpuplan can ask for"
            said = _nothing(name)
        elif offline:
            unknown[name] = OFFLINE
            said = _nothing(name)
        else:
            known_clouds([name])
            said = ask_cloud(name, wanted, clouds, unknown, on_progress)
        lines += capacity_lines(
            catalogue,
            said,
            instances,
            wanted.regions,
            nodes=nodes,
            purchase=purchase,
            now=moment,
        )
    return CapacityAnswer(
        asked_at=moment,
        accelerator=text,
        nodes=nodes,
        purchase=purchase,
        price_source=catalogue.price_source,
        lines=in_order(lines),
        providers_unknown=unknown,
    )


def _of_plan(plan: str | Plan) -> tuple[str, int, OfferPurchase, dict[str, list[str]]]:
    """Return what a plan's machines are called, how many, how bought, and whose they are."""
    from ..launcher.store.plan_file import given_plan

    given = given_plan(plan).plan
    offer = given.offer
    text = f"{offer.accelerator}:{offer.accelerators_per_node:g}"
    purchase: OfferPurchase = "spot" if offer.purchase == "spot" else "on-demand"
    return text, given.nodes, purchase, {offer.provider: [offer.instance_type]}


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
    from ..catalog.listing.capacity import CloudAnswer

    return CloudAnswer(provider=name)


def ask_cloud(
    name: str,
    wanted: Asked,
    clouds: Mapping[str, Cloud] | None,
    unknown: dict[str, str],
    on_progress: Tell | None,
) -> CloudAnswer:
    """Return all that one cloud says; where it cannot be asked, nothing, and why in `unknown`."""
    from ..catalog.clouds.asking import one_at_a_time
    from ..catalog.clouds.connect import connect
    from ..catalog.clouds.interface import CloudError

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
    from ..catalog.listing.capacity import CloudAnswer, limit_wanted

    # None of the three waits for another; each asks its regions by itself.
    with ThreadPoolExecutor(max_workers=3) as pool:
        availability = pool.submit(cloud.availability, wanted, tell)
        quotas = pool.submit(cloud.quota, wanted, tell)
        reservations = pool.submit(cloud.reservations, wanted, tell)
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
