"""What a data set costs beside the machines: kept in a bucket near them, and moved there.

It is read where the machines are, so it is kept there while the job lasts. From another place it is
moved once: traffic is billed by the seller of the place that it leaves. What it costs to read it
from that place in every epoch instead, as a job does that mounts its bucket, stands beside.

Where a price is not known the line says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from ....catalog.terms.storage import dearest_usd_per_gb, gb_bytes, storage_prices
from ....catalog.units import HOURS_PER_MONTH
from ...plan.parts import DATASET_LINES, DataLine
from ...plan.question import Work
from ..tax import taxed
from .data_cost import line_of

KEPT, MOVED = DATASET_LINES
READ_AFAR = "or data set read from afar in every epoch"
"""In place of being moved once; in no sum, and in no order."""


def dataset_lines(
    work: Work, provider: str, region: str, *, hours: float, is_owned: bool = False
) -> tuple[DataLine, ...]:
    """Return what the data set of a job costs; nothing where its size is not stated.

    Args:
        work: with the data set's bytes, and the place where it is now, if that is stated.
        provider: who sells the machines, and keeps the data set while they train.
        region: where both are.
        hours: of the whole job.
        is_owned: whether the machines are the user's own, whose disks are paid already.
    """
    if work.dataset_bytes is None:
        return ()
    size_bytes = round(work.dataset_bytes)
    lines = []
    if not is_owned:
        prices = storage_prices(provider, region)
        months = Decimal(hours) / HOURS_PER_MONTH
        month_usd = prices.object_storage_usd_per_month(size_bytes)
        lines.append(
            line_of(
                KEPT,
                Decimal(size_bytes) / gb_bytes(provider) * months,
                "GB-month",
                None if month_usd is None else month_usd * months,
                prices.object_storage,
                is_certain=True,
            )
        )
    at = work.dataset_place
    if at is not None and at != (provider, region):
        is_inside = at[0] == provider
        lines.append(_sent(MOVED, size_bytes, at, is_inside=is_inside, is_certain=True))
        epochs = _epochs(work)
        if epochs is not None and epochs > 1:
            lines.append(_sent(READ_AFAR, round(epochs * size_bytes), at, is_inside=is_inside))
    return tuple(lines)


def _epochs(work: Work) -> float | None:
    """Return how often the data set is read; None where it is not known how much of it is."""
    if work.epochs is not None:
        return work.epochs
    samples = work.samples
    if samples is None and work.steps is not None and work.global_batch is not None:
        samples = work.steps * work.global_batch
    return None if samples is None or not work.dataset_size else samples / work.dataset_size


def _sent(
    name: str,
    size_bytes: int,
    at: tuple[str, str],
    *,
    is_inside: bool,
    is_certain: bool = False,
) -> DataLine:
    """Return a line of the traffic out of a place: inside its seller, or to the internet."""
    prices = storage_prices(*at)
    if is_inside:
        usd, tiers = prices.inter_region_usd(size_bytes), prices.inter_region
    else:
        usd, tiers = prices.internet_egress_usd(size_bytes), prices.internet_egress
    quantity = Decimal(size_bytes) / gb_bytes(at[0])
    return line_of(name, quantity, "GB", usd, tiers, is_certain=is_certain)


def known_usd(lines: Iterable[DataLine], tax_percent: Decimal | None = None) -> Decimal:
    """Return what the lines of a data set cost as far as it is known, with its tax, dollars."""
    known = (one.usd for one in lines if one.is_of_dataset and one.usd)
    return taxed(sum(known, Decimal(0)), tax_percent)


def dearest_usd(name: str) -> Decimal:
    """Return the highest price of a GB that any seller states for a line of this file."""
    item = "object_storage_usd_per_gb_month" if name == KEPT else "internet_egress_usd_per_gb"
    return dearest_usd_per_gb(item)
