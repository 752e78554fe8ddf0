"""What a plan counts on of the network between its nodes, for those who look at it there. Pure."""

from __future__ import annotations

from dataclasses import replace

from ....catalog.snapshot import Catalogue
from ....planner.plan.plan import Plan
from ....profiles.curves.network import fabric_of, share_of_line
from ...guard.orders import NetworkOrders, Orders
from ...runner.job import Job
from ...skypilot.interfaces import Interfaces, interfaces_of
from ..money.purchase import Bought


def asked_interfaces(plan: Plan, machines: Bought, catalogue: Catalogue) -> Interfaces | None:
    """Return the interfaces that are asked for; None for one node, and where they are not known."""
    request = machines.request
    return interfaces_of(
        plan,
        (*machines.places, *machines.fallback),
        catalogue,
        public_ips=request.public_ips,
        managed=request.buys_spot(plan),
        settings=request.aws,
    )


def network_orders(
    plan: Plan, catalogue: Catalogue, interfaces: Interfaces | None
) -> NetworkOrders | None:
    """Return what an all-reduce should reach, and the interfaces; None for one node.

    The least of what collectives reach of the network on an idle machine, and of the link inside a
    node, which a ring crosses as well.
    """
    row = catalogue.instances.get((plan.offer.provider, plan.offer.instance_type))
    if plan.nodes == 1 or row is None:
        return None
    inter, rates = row.inter_link, []
    if inter.bytes_per_s is not None:
        fabric = fabric_of(inter.name, inter.rdma)
        rates.append(inter.bytes_per_s * share_of_line(fabric, under_compute=False))
    if row.accelerators > 1 and row.intra_link.bytes_per_s is not None:
        rates.append(row.intra_link.bytes_per_s)
    return NetworkOrders(
        interfaces=None if interfaces is None else interfaces.most,
        bytes_per_s=min(rates) if inter.bytes_per_s is not None else None,
    )


def with_network(
    held: Orders, job: Job | None, planned: NetworkOrders | None
) -> tuple[Orders, Job | None]:
    """Return the guard's orders and the job, which both look at the network."""
    if planned is None:
        return held, job
    if job is not None:
        job = replace(job, network_bytes_per_s=planned.bytes_per_s)
    return replace(held, network=planned), job
