"""Devices, links and bought hardware as the user's file describes them → rows of the catalogue."""

from __future__ import annotations

from decimal import Decimal

from ..csv_rows import DTYPES
from ..listing.ownership import Ownership
from ..types import Accelerator, Dtype, Link
from ..units import GB, GIB, GIGABIT_BYTES, TERA
from .fields import Fields

OWNED = ("capex_usd", "lifetime_years", "power_w", "usd_per_kwh", "pue", "utilisation")
OWNED_FIELDS = (
    *OWNED,
    *("residual_usd", "idle_power_w", "hosting_usd_per_month", "staff_usd_per_month"),
)


def ownership_of(part: Fields | None) -> Ownership | None:
    """Return what bought hardware cost; None where nothing is said of it.

    Raises:
        UsageError: a value is missing or wrong.
    """
    if part is None:
        return None
    part.expect(OWNED, OWNED_FIELDS)
    owned = Ownership(
        capex_usd=part.required_number("capex_usd", above=0),
        lifetime_years=_needed(part, "lifetime_years", above=0, most=50),
        residual_usd=part.number("residual_usd", least=0) or Decimal(0),
        power_w=part.required_number("power_w", above=0),
        idle_power_w=part.number("idle_power_w", least=0) or Decimal(0),
        usd_per_kwh=_needed(part, "usd_per_kwh", least=0),
        pue=_needed(part, "pue", least=1, most=5),
        utilisation=_needed(part, "utilisation", above=0, most=1),
        hosting_usd_per_month=part.number("hosting_usd_per_month", least=0) or Decimal(0),
        staff_usd_per_month=part.number("staff_usd_per_month", least=0) or Decimal(0),
    )
    if owned.residual_usd >= owned.capex_usd:
        raise part.error(
            f"residual_usd {owned.residual_usd} is not below capex_usd {owned.capex_usd}.",
            line=part.line_of("residual_usd"),
        )
    return owned


def _needed(
    part: Fields,
    name: str,
    *,
    above: int | None = None,
    least: int | None = None,
    most: int | None = None,
) -> Decimal:
    part.required_text(name)
    value = part.number(name, above=above, least=least, most=most)
    return value if value is not None else Decimal(0)


def intra_link_of(part: Fields | None) -> Link | None:
    """Return the link inside a machine, in GB/s in the file; None where nothing is said of it."""
    if part is None:
        return None
    rate = part.number("gb_per_s", above=0)
    link = Link(
        name=part.text("name"),
        bytes_per_s=float(rate * GB) if rate is not None else None,
        switched=part.boolean("switched"),
    )
    part.refuse_unknown()
    return link


def inter_link_of(part: Fields | None) -> Link | None:
    """Return the network between machines, in Gbit/s in the file; None without a word of it."""
    if part is None:
        return None
    rate = part.number("gbit_per_s", above=0)
    link = Link(
        name=part.text("name"),
        bytes_per_s=float(rate) * GIGABIT_BYTES if rate is not None else None,
        rdma=part.boolean("rdma"),
    )
    part.refuse_unknown()
    return link


def accelerator_of(part: Fields) -> Accelerator:
    """Return a device that the user describes: GiB, GB/s, dense TFLOP/s and W in the file.

    Raises:
        UsageError: it has no peak rate, or a value is missing or wrong.
    """
    name = part.required_text("name")
    visible = part.number("memory_visible_gib", above=0)
    link = part.number("link_gb_per_s", above=0)
    tdp = part.number("tdp_w", above=0)
    peaks: dict[Dtype, Decimal | None] = {
        dtype: part.number(f"{dtype}_tflops", above=0) for dtype in DTYPES
    }
    if not any(peaks.values()):
        raise part.error(
            f"{name} has no peak rate.",
            fix="Add at least one, for example `bf16_tflops: …` (dense).",
        )
    row = Accelerator(
        name=name,
        vendor=part.text("vendor") or "user",
        arch=part.text("arch") or "unknown",
        form_factor=part.text("form_factor"),
        memory_bytes=whole_bytes(part.required_number("memory_gib", above=0), GIB),
        memory_visible_bytes=whole_bytes(visible, GIB) if visible is not None else None,
        memory_bandwidth_bytes_per_s=float(
            part.required_number("memory_bandwidth_gb_per_s", above=0) * GB
        ),
        peak_flops={dtype: float(peak * TERA) for dtype, peak in peaks.items() if peak is not None},
        compute_units=None,
        boost_hz=None,
        l2_bytes=None,
        link=part.text("link"),
        link_bytes_per_s=float(link * GB) if link is not None else None,
        tdp_w=float(tdp) if tdp is not None else None,
        compute_capability=part.text("compute_capability"),
        launch_year=None,
        source=part.text("source") or f"{part.path.name}:{part.line}",
        confidence="medium",
        note=part.text("note"),
        licence=None,
    )
    part.refuse_unknown()
    return row


def whole_bytes(value: Decimal, unit: int) -> int:
    """Return so many units (GiB or GB, in bytes) as whole bytes."""
    return int(value * unit)
