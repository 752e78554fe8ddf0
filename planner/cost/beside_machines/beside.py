"""What a job pays for beside its machines: lines, their tax, their sum and what bounds it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal

from ....catalog.terms.controllers import controller_machine, dearest_controller_usd_per_hour
from ....catalog.terms.storage import dearest_usd_per_gb
from ....catalog.units import SECONDS_PER_HOUR
from ...goodput.own_stops import NO_OWN_STOPS, OwnStops, failed_attempts
from ...goodput.priors import prior
from ...plan.parts import CostLine, DataLine
from ..launch_cost import CONTROLLER, CONTROLLER_IDLE_HOURS
from ..run_cost import CENT, UNIT
from ..start_up import start_up_s
from ..tax import TAX, tax_rate, tax_usd, taxed
from .data_cost import CHECKPOINTS, DISKS, data_lines
from .dataset_cost import KEPT, MOVED, dearest_usd

HOST = "vCPUs and memory"
IDLE_TAIL = "idle tail"
FAILED_ATTEMPTS = "failed attempts"
AROUND_LINES = (IDLE_TAIL, FAILED_ATTEMPTS)
SPARES = "spares of NVL72"
RACK_ACCELERATORS = 72
TRAINING_NODES, SPARE_NODES = 16, 2
"""Of the 18 nodes of a rack: 64 of 72 accelerators train."""
SPARES_SOURCE = (
    "16 of the 18 nodes of a rack for large jobs: NVIDIA Technical Blog, Unlock Exascale"
    " Performance on NVIDIA GB200 NVL72 with Slurm Topology-Aware Job Scheduling (2026); that the"
    " other 2 are reserved as spares is assumed"
)
NEGLIGIBLE = Decimal("0.01")
"""Of the machines' dollars: what cannot be more does not make a cost a lower bound."""

DEAREST: dict[str, Callable[[], Decimal]] = {
    DISKS: lambda: dearest_usd_per_gb("block_storage_usd_per_gb_month"),
    CHECKPOINTS: lambda: dearest_usd_per_gb("object_storage_usd_per_gb_month"),
    CONTROLLER: dearest_controller_usd_per_hour,
    HOST: dearest_controller_usd_per_hour,
    KEPT: lambda: dearest_usd(KEPT),
    MOVED: lambda: dearest_usd(MOVED),
}
"""The highest price of a unit that is known anywhere, by the name of a line. A host beside an
accelerator counts as a machine of 4 vCPUs with 16 GB, as a controller is."""
OF_NO_KNOWN_AMOUNT = (HOST,)
"""Lines of which not even the amount is known: no price of a unit says what they cost at most."""


@dataclass(frozen=True)
class Machines:
    """What decides on the lines beside machines, but for the time that they run."""

    provider: str
    region: str
    nodes: int
    checkpoint_bytes: float
    is_managed: bool
    """Whether SkyPilot watches the job from a controller, and its checkpoints are in a bucket."""
    is_owned: bool
    """Whether they are the user's own, which cost nothing beside a job."""
    is_paid_whole: bool
    """Whether terms or blocks are bought for this job."""
    is_host_apart: bool = False
    """Whether their price is that of the accelerator alone."""
    minimum_s: float = 0.0
    """The least that is billed of each, where some jobs are shorter (`has_long_minimum`)."""


def beside_lines(
    machines: Machines,
    *,
    hours: float,
    usd_per_hour: Decimal | None,
    own: OwnStops = NO_OWN_STOPS,
) -> tuple[DataLine, ...]:
    """Return what a job pays for beside its machines, without a data set and spares.

    Args:
        machines: where, how many, how they are bought.
        hours: of the whole job.
        usd_per_hour: one node; None where the price is not known.
        own: the user's launches that failed before their first step.
    """
    provider, region, nodes = machines.provider, machines.region, machines.nodes
    lines = data_lines(
        provider=provider,
        region=region,
        nodes=nodes,
        checkpoint_bytes=machines.checkpoint_bytes,
        hours=hours,
        in_bucket=machines.is_managed,
    )
    if machines.is_host_apart:
        lines += (host_line(nodes, hours),)
    if machines.is_managed:
        lines += (controller_line(provider, region, hours),)
    if not machines.is_owned:
        tail_s = billed_tail_s(hours * SECONDS_PER_HOUR, machines.minimum_s)
        whole = machines.is_paid_whole
        lines += around_lines(nodes, usd_per_hour, own, is_paid_whole=whole, tail_s=tail_s)
    return lines


def billed_tail_s(ran_s: float, minimum_s: float) -> float:
    """Return seconds of the idle tail that are billed beyond a job.

    Args:
        ran_s: for which the machines run until the job ends.
        minimum_s: the least that is billed of them: what is left of it is paid already.
    """
    tail_s = prior("idle_tail").value
    return min(tail_s, max(0.0, ran_s + tail_s - minimum_s))


def host_line(nodes: int, hours: float) -> DataLine:
    """Return what vCPUs and memory cost where they are billed beside the accelerator: not known.

    Sellers state a price of each, and the catalogue not how many an accelerator is rented with.

    Args:
        nodes: how many are rented.
        hours: of the whole job.
    """
    return DataLine(
        name=HOST,
        quantity=nodes * hours,
        unit=UNIT,
        unit_usd=None,
        usd=None,
        source="billed apart by the seller; how many come with an accelerator is not stated",
        is_certain=True,
    )


def controller_line(provider: str, region: str, hours: float) -> DataLine:
    """Return what the machine costs that SkyPilot runs a managed job from.

    Args:
        provider: of the job: SkyPilot takes a machine of the same cloud and region.
        region: of the job.
        hours: from the request to the end; it then waits ten minutes more.
    """
    machine = controller_machine(provider, region)
    quantity = Decimal(hours) + CONTROLLER_IDLE_HOURS
    return DataLine(
        name=CONTROLLER,
        quantity=float(quantity),
        unit="instance-hour",
        unit_usd=None if machine is None else machine.usd_per_hour,
        usd=None if machine is None else (quantity * machine.usd_per_hour).quantize(CENT),
        source=None if machine is None else f"{machine.instance_type}: {machine.source}",
        is_certain=True,
    )


def spares_line(nodes: int, hours: float, usd_per_hour: Decimal | None) -> DataLine | None:
    """Return what the nodes of NVL72 racks cost that wait for another to fail.

    None for a job that is smaller than what one rack trains on.

    Args:
        nodes: that train, of 4 accelerators.
        hours: of the whole job.
        usd_per_hour: one node; None where the price is not known.
    """
    if nodes < TRAINING_NODES:
        return None
    quantity = Decimal(hours) * SPARE_NODES * math.ceil(nodes / TRAINING_NODES)
    return DataLine(
        name=SPARES,
        quantity=float(quantity),
        unit="instance-hour",
        unit_usd=usd_per_hour,
        usd=None if usd_per_hour is None else (quantity * usd_per_hour).quantize(CENT),
        source=SPARES_SOURCE,
    )


def around_lines(
    nodes: int,
    usd_per_hour: Decimal | None,
    own: OwnStops = NO_OWN_STOPS,
    *,
    is_paid_whole: bool = False,
    tail_s: float | None = None,
) -> tuple[DataLine, ...]:
    """Return what machines cost after a job has ended, and in launches that end before they train.

    How long a job runs changes neither, but for the least that a seller bills. Hours that are paid
    whether used or not cost no more.

    Args:
        nodes: how many are rented.
        usd_per_hour: one node; None where the price is not known.
        own: the user's launches that failed before their first step.
        is_paid_whole: whether terms or blocks are bought for this job.
        tail_s: seconds of the idle tail that are billed; None: all of it. Of none there is no line.
    """
    if is_paid_whole:
        return ()
    tail, failed = prior("idle_tail"), failed_attempts(own)
    billed_s = tail.value if tail_s is None else tail_s
    tail_hours = Decimal(nodes) * Decimal(billed_s) / SECONDS_PER_HOUR
    failed_s = Decimal(failed.value) * Decimal(start_up_s())
    failed_hours = nodes * failed_s / SECONDS_PER_HOUR
    idle = _machine_line(IDLE_TAIL, tail_hours, usd_per_hour, tail.source, is_certain=True)
    lines = (idle,) if billed_s else ()
    return (*lines, _machine_line(FAILED_ATTEMPTS, failed_hours, usd_per_hour, failed.source))


def at_price(line: DataLine, usd_per_hour: Decimal) -> DataLine:
    """Return a line of machines where a node of them has another price."""
    if line.unit_usd == usd_per_hour:
        return line
    usd = (Decimal(line.quantity) * usd_per_hour).quantize(CENT)
    return line.model_copy(update={"unit_usd": usd_per_hour, "usd": usd})


def _machine_line(
    name: str,
    hours: Decimal,
    usd_per_hour: Decimal | None,
    source: str,
    *,
    is_certain: bool = False,
) -> DataLine:
    return DataLine(
        name=name,
        quantity=float(hours),
        unit=UNIT,
        unit_usd=usd_per_hour,
        usd=None if usd_per_hour is None else (hours * usd_per_hour).quantize(CENT),
        source=source,
        is_certain=is_certain,
    )


def beside_tax_line(lines: Iterable[DataLine], percent: Decimal | None) -> DataLine | None:
    """Return the tax on what is surely paid beside the machines and whose price is known.

    None where no tax is counted, or nothing such is paid.
    """
    net = sum((one.usd for one in lines if one.is_certain and one.usd is not None), Decimal(0))
    if not percent or not net:
        return None
    return DataLine(
        name=TAX,
        quantity=float(net),
        unit="USD",
        unit_usd=tax_rate(percent),
        usd=tax_usd(net, percent),
        is_certain=True,
    )


def total_usd(cost_lines: Iterable[CostLine], beside: Iterable[DataLine]) -> Decimal:
    """Return the exact sum of a cost and of what is surely paid beside it, where that is known."""
    sure = (one.usd for one in beside if one.is_certain and one.usd is not None)
    return sum((line.usd for line in cost_lines), Decimal(0)) + sum(sure, Decimal(0))


def dearest_unit_usd(name: str) -> Decimal | None:
    """Return the highest price of a unit of a line that any seller states, dollars.

    None where that does not say what the line costs at most: vCPUs of which nobody says how many
    there are, and lines of machines.

    >>> dearest_unit_usd(HOST), dearest_unit_usd(IDLE_TAIL)
    (None, None)
    """
    dearest = None if name in OF_NO_KNOWN_AMOUNT else DEAREST.get(name)
    return None if dearest is None else dearest()


def most_beside_usd(beside: Iterable[DataLine], percent: Decimal | None = None) -> Decimal | None:
    """Return the most that lines without a price cost at the dearest price known, with tax.

    None where nothing says what one of them costs at most.

    Args:
        beside: what is paid beside machines.
        percent: tax; None: none is counted.
    """
    usd = Decimal(0)
    for one in beside:
        if one.is_certain and one.usd is None:
            unit_usd = dearest_unit_usd(one.name)
            if unit_usd is None:
                return None
            usd += Decimal(one.quantity) * unit_usd
    return taxed(usd, percent)


def is_lower_bound(usd: Decimal, beside: Iterable[DataLine]) -> bool:
    """Return whether a job surely pays more than is known: a line has no known price.

    A line that would be below one percent of the machines at the dearest price that any seller
    states does not count.

    Args:
        usd: of the machines.
        beside: what is paid beside them.
    """
    unknown = (one for one in beside if one.is_certain and one.usd is None)
    return any(Decimal(one.quantity) * DEAREST[one.name]() >= NEGLIGIBLE * usd for one in unknown)
