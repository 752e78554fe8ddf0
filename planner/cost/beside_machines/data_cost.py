"""What a job's data costs beside its machines: their disks, kept checkpoints, a download.

Prices are those of the table of storage and traffic (`catalog/terms/storage.py`). Where it has
none, the line is there and its dollars are None: unknown is not free.
"""

from __future__ import annotations

from decimal import Decimal

from ....catalog.terms.storage import PriceTier, StoragePrices, gb_bytes, storage_prices
from ....catalog.units import GB, HOURS_PER_MONTH
from ...plan.parts import DataLine
from ..run_cost import CENT

SIZED_DISKS = ("aws", "gcp", "azure", "oci", "nebius")
"""Sellers whose machines have a disk of the size that is asked for, and billed apart."""
KIND_OF_DISK = {"aws": "gp3", "gcp": "pd-balanced", "azure": "Premium SSD P30 LRS (1024 GiB)"}
"""What SkyPilot 0.14 takes there for its usual disk tier (sky/clouds: gp3, pd-balanced and Premium
SSD); the price of Azure's is that of one size, P30."""
DISKS, CHECKPOINTS, DOWNLOAD = "disks", "checkpoints kept", "download of a checkpoint"
LEAST_DISK_GB = 256
ROOM_GB = 100
"""The system, the environment and what a script leaves."""
COPIES = 4
"""Checkpoints that a disk has room for: the two that stay, the one that is being written, and as
much again for what formats add and for other files of the run."""
KEPT = 2
"""Checkpoints that stay, as the runner's `--keep` has it."""


def disk_gb(checkpoint_bytes: float | None) -> int:
    """Return the size of a node's disk, GB: room for checkpoints beside the system.

    >>> disk_gb(None), disk_gb(1.5e9), disk_gb(840e9)
    (256, 256, 3460)
    """
    return max(LEAST_DISK_GB, ROOM_GB + round(COPIES * (checkpoint_bytes or 0) / GB))


def data_lines(
    *,
    provider: str,
    region: str,
    nodes: int,
    checkpoint_bytes: float,
    hours: float,
    in_bucket: bool = False,
) -> tuple[DataLine, ...]:
    """Return what the data of a job costs.

    Args:
        provider: who sells the machines, and is taken to keep the data.
        region: where both are.
        nodes: how many have a disk.
        checkpoint_bytes: of one checkpoint; a disk has room for some of them.
        hours: of the whole job: so long are disks rented and checkpoints kept.
        in_bucket: whether checkpoints are surely kept in a bucket, as those of spot machines are.
    """
    prices = storage_prices(provider, region)
    months = Decimal(hours) / HOURS_PER_MONTH
    kept_bytes = round(KEPT * checkpoint_bytes)
    gb = gb_bytes(provider)
    month_usd = prices.object_storage_usd_per_month(kept_bytes)
    lines = [
        line_of(
            CHECKPOINTS,
            Decimal(kept_bytes) / gb * months,
            "GB-month",
            None if month_usd is None else month_usd * months,
            prices.object_storage,
            is_certain=in_bucket,
        ),
        line_of(
            DOWNLOAD,
            Decimal(round(checkpoint_bytes)) / gb,
            "GB",
            prices.internet_egress_usd(round(checkpoint_bytes)),
            prices.internet_egress,
        ),
    ]
    if provider in SIZED_DISKS:
        lines.insert(0, _disks(provider, prices, nodes * disk_gb(checkpoint_bytes), months))
    return tuple(lines)


def _disks(provider: str, prices: StoragePrices, size_gb: int, months: Decimal) -> DataLine:
    kind = KIND_OF_DISK.get(provider)
    tiers = tuple(one for one in prices.block_storage if one.name == kind)
    # A disk of 256 GB has 256 of what its seller calls a GB.
    size_bytes = size_gb * (tiers[0].gb_bytes if tiers else gb_bytes(provider))
    month_usd = prices.block_storage_usd_per_month(size_bytes, kind or "")
    usd = None if month_usd is None else month_usd * months
    return line_of(DISKS, size_gb * months, "GB-month", usd, tiers, is_certain=True)


def line_of(
    name: str,
    quantity: Decimal,
    unit: str,
    usd: Decimal | None,
    tiers: tuple[PriceTier, ...],
    *,
    is_certain: bool = False,
) -> DataLine:
    """Return a line; its dollars are rounded to the cent, and its price is that of a first tier."""
    return DataLine(
        name=name,
        quantity=float(quantity),
        unit=unit,
        unit_usd=tiers[0].usd_per_gb if tiers else None,
        usd=None if usd is None else usd.quantize(CENT),
        source=tiers[0].source if tiers else None,
        is_certain=is_certain,
    )
