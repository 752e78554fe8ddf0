"""What a job's data costs beside its machines: their disks, kept checkpoints, a download.

Prices are those of the table of storage and traffic (`catalog/terms/storage.py`). Where it has
none, the line is there and its dollars are None: unknown is not free.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from ...catalog.terms.storage import PriceTier, StoragePrices, gb_bytes, storage_prices
from ...catalog.text.money import format_money
from ..plan.parts import DataLine
from .run_cost import CENT

SIZED_DISKS = ("aws", "gcp", "azure", "oci", "nebius")
"""Sellers whose machines have a disk of the size that is asked for, and billed apart."""
KIND_OF_DISK = {"aws": "gp3", "gcp": "pd-balanced", "azure": "Premium SSD P30 LRS (1024 GiB)"}
"""What SkyPilot 0.14 takes there for its usual disk tier (sky/clouds: gp3, pd-balanced and Premium
SSD); the price of Azure's is that of one size, P30."""
LEAST_DISK_GB = 256
ROOM_GB = 100
"""The system, the environment and what a script leaves."""
STATE_BYTES_PER_PARAMETER = 16
"""Weights, two moments of Adam and what the file's format adds, all fp32 at most."""
COPIES = 3
"""Checkpoints on a disk: the two that stay, and the one that is being written."""
KEPT = 2
"""Checkpoints that stay, as the runner's `--keep` has it."""
HOURS_PER_MONTH = 730


def disk_gb(parameters: int | None) -> int:
    """Return the size of a node's disk, GB: room for checkpoints beside the system.

    >>> disk_gb(124_000_000), disk_gb(70_000_000_000)
    (256, 3460)
    """
    state_gb = COPIES * STATE_BYTES_PER_PARAMETER * (parameters or 0) / 1e9
    return max(LEAST_DISK_GB, ROOM_GB + round(state_gb))


def data_lines(
    *,
    provider: str,
    region: str,
    nodes: int,
    parameters: int,
    checkpoint_bytes: float,
    hours: float,
) -> tuple[DataLine, ...]:
    """Return what the data of a job costs.

    Args:
        provider: who sells the machines, and is taken to keep the data.
        region: where both are.
        nodes: how many have a disk.
        parameters: of the model, for the size of the disks.
        checkpoint_bytes: of one checkpoint.
        hours: of the whole job: so long are disks rented and checkpoints kept.
    """
    prices = storage_prices(provider, region)
    months = Decimal(hours) / HOURS_PER_MONTH
    kept_bytes = round(KEPT * checkpoint_bytes)
    gb = gb_bytes(provider)
    month_usd = prices.object_storage_usd_per_month(kept_bytes)
    lines = [
        _line(
            "checkpoints kept",
            Decimal(kept_bytes) / gb * months,
            "GB-month",
            None if month_usd is None else month_usd * months,
            prices.object_storage,
        ),
        _line(
            "download of a checkpoint",
            Decimal(round(checkpoint_bytes)) / gb,
            "GB",
            prices.internet_egress_usd(round(checkpoint_bytes)),
            prices.internet_egress,
        ),
    ]
    if provider in SIZED_DISKS:
        lines.insert(0, _disks(provider, prices, nodes * disk_gb(parameters), months))
    return tuple(lines)


def known_usd(lines: Iterable[DataLine]) -> Decimal:
    """Return the sum of what is known."""
    return sum((line.usd for line in lines if line.usd is not None), Decimal(0))


def in_words(lines: Iterable[DataLine]) -> str:
    """Return the lines in one line of text: "disks $4.60, download of a checkpoint ?"."""
    return ", ".join(
        f"{line.name} {'?' if line.usd is None else format_money(line.usd)}" for line in lines
    )


def _disks(provider: str, prices: StoragePrices, size_gb: int, months: Decimal) -> DataLine:
    kind = KIND_OF_DISK.get(provider)
    tiers = tuple(one for one in prices.block_storage if one.name == kind)
    # A disk of 256 GB has 256 of what its seller calls a GB.
    size_bytes = size_gb * (tiers[0].gb_bytes if tiers else gb_bytes(provider))
    month_usd = prices.block_storage_usd_per_month(size_bytes, kind or "")
    usd = None if month_usd is None else month_usd * months
    return _line("disks", size_gb * months, "GB-month", usd, tiers)


def _line(
    name: str, quantity: Decimal, unit: str, usd: Decimal | None, tiers: tuple[PriceTier, ...]
) -> DataLine:
    return DataLine(
        name=name,
        quantity=float(quantity),
        unit=unit,
        unit_usd=tiers[0].usd_per_gb if tiers else None,
        usd=None if usd is None else usd.quantize(CENT),
        source=tiers[0].source if tiers else None,
    )
