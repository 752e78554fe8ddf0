"""The gathered tables (`--source`) → our schema: SI units, our column names, nothing else changed.

One function per table, text in and text out, so that a figure is written exactly as it was read.
"""

from __future__ import annotations

from decimal import Decimal

from ..tpu_slices import slice_chips
from ..units import GB, GIB, MIB, TERA

Cells = dict[str, str]

PEAK_COLUMNS = {
    "fp64_tflops": "fp64_flops",
    "fp32_tflops": "fp32_flops",
    "tf32_tflops": "tf32_flops",
    "fp16_tflops": "fp16_flops",
    "bf16_tflops": "bf16_flops",
    "fp8_tflops": "fp8_flops",
    "fp4_tflops": "fp4_flops",
    "int8_tops": "int8_flops",
}
MEGA = 10**6
GIGABIT_PER_BYTE = Decimal(10**9) / 8
REGION_TYPOS = {("gcp", "me-cenrtal1"): "me-central1"}


def accelerator(row: Cells) -> Cells:
    """Return one accelerator in our schema."""
    units = row["sm_or_cu"].split(" ")[0]
    return {
        **_same(row, "name,vendor,arch,form_factor,memory_type,memory_visible_source,link"),
        **_same(row, "compute_capability,launch_year,confidence,licence,source,note,tdp_w"),
        "memory_bytes": _scaled(row["memory_gib_nominal"], GIB),
        "memory_visible_bytes": _scaled(row["memory_visible_mib"], MIB),
        "memory_bandwidth_bytes_per_s": _scaled(row["mem_bw_gbs"], GB),
        **{ours: _scaled(row[theirs], TERA) for theirs, ours in PEAK_COLUMNS.items()},
        "compute_units": units,
        "boost_hz": _scaled(row["boost_mhz"], MEGA),
        "l2_bytes": _scaled(row["l2_mb"], MIB),
        "link_bytes_per_s": _scaled(row["link_unidir_gbs"], GB),
    }


def instance(row: Cells) -> Cells:
    """Return one instance in our schema; a link that is not there has no name and no figure."""
    has_intra_link = row["intra_link"] not in ("", "none")
    fabric = row["inter_node_fabric"]
    return {
        **_same(row, "provider,instance_type,accelerator,vcpus,cluster_placement,usage_classes"),
        **_same(row, "basis,confidence,licence,source"),
        "accelerators": row["accelerators_per_instance"],
        "memory_bytes": _scaled(row["memory_gib"], GIB),
        "intra_link": row["intra_link"] if has_intra_link else "",
        "intra_link_bytes_per_s": (
            _scaled(row["intra_link_unidir_gbs_per_acc"], GB) if has_intra_link else ""
        ),
        "intra_link_switched": _switched(row["nvswitch"]) if has_intra_link else "",
        "link_domain_accelerators": _link_domain(row),
        "inter_link": "TCP" if fabric == "none (no IB)" else fabric,
        "inter_link_bytes_per_s": _scaled(row["inter_node_gbps_per_node"], GIGABIT_PER_BYTE),
        "inter_link_rdma": row["rdma"].split(" ")[0],
        "local_nvme_bytes": _scaled(row["local_nvme_gb"], GB),
        "note": _joined(row["note"], "no InfiniBand" if fabric == "none (no IB)" else ""),
    }


def _link_domain(row: Cells) -> str:
    """Return how many accelerators of several machines the fast link joins, if it does."""
    if "72" in row["nvswitch"]:
        return "72"
    count = Decimal(row["accelerators_per_instance"])
    chips = slice_chips(row["instance_type"], row["accelerator"], count)
    return "" if chips is None else str(chips)


def offer(row: Cells) -> Cells:
    """Return one offer in our schema."""
    return {
        **_same(row, "provider,region,instance_type,accelerator,on_demand_usd_per_hour"),
        **_same(row, "spot_usd_per_hour,price_basis,marketplace,skypilot_cloud,licence"),
        **_same(row, "source,note"),
        "accelerators": row["accelerator_count"],
        "spot_is_market": "yes" if row["spot_information"] == "market" else "no",
        "price_date": row["snapshot_date"],
        "price_date_precision": row["date_precision"],
    }


def provider(row: Cells) -> Cells:
    """Return one provider in our schema; "partly" a marketplace is said per offer instead."""
    home = row["home_jurisdiction"].lower()
    hipaa = row["hipaa_eligible"]
    return {
        **_same(row, "skypilot_cloud,billing_increment_s,minimum_s,pue,source"),
        "name": row["provider"],
        "marketplace": "yes" if row["marketplace"] == "yes" else "no",
        "hipaa_eligible": hipaa if hipaa in ("yes", "no") else "",
        "home_jurisdiction": home if len(home) == 2 else "",
    }


def regions(offers: list[Cells], carbon: list[Cells], countries: list[Cells]) -> list[Cells]:
    """Return one row per region that is sold, or whose grid is known, of the providers we list."""
    providers = {row["provider"] for row in offers}
    grids = {_region_key(row): row for row in carbon if row["provider"] in providers}
    places = {(row["provider"], row["region"]): row for row in countries}
    sold = {(row["provider"], row["region"]) for row in offers}
    table = []
    for key in sorted(sold | (grids.keys() & places.keys())):
        grid, place = grids.get(key), places.get(key)
        table.append(
            {
                "provider": key[0],
                "name": key[1],
                "jurisdiction": place["country"] if place else "",
                "grid_kg_co2e_per_kwh": (
                    _scaled(grid["grid_gco2e_per_kwh"], Decimal("0.001")) if grid else ""
                ),
                "source": _joined(
                    place["source"] if place else "",
                    f"grid {grid['data_year']}: {grid['source']}" if grid else "",
                ),
            }
        )
    return table


def commitment(row: Cells) -> Cells:
    """Return one committed-use price in our schema."""
    return {
        **_same(row, "provider,region,instance_type,term_years,usd_per_hour,source"),
        "price_date": row["date"],
    }


def storage(row: Cells) -> Cells:
    """Return one storage or egress price; the unit stays in `item` ("…_usd_per_gb_month")."""
    return _same(row, "provider,region,item,tier,usd,source")


def spot_interruption(row: Cells) -> Cells:
    """Return one AWS spot interruption band, percentages as fractions."""
    percent = Decimal("0.01")
    return {
        **_same(row, "region,instance_type,source"),
        "provider": "aws",
        "monthly_interruption_low": _scaled(row["monthly_interruption_min_percent"], percent),
        "monthly_interruption_high": _scaled(row["monthly_interruption_max_percent"], percent),
        "spot_saving": _scaled(row["saving_over_on_demand_percent"], percent),
    }


def alias(row: Cells) -> Cells:
    """Return one alias with how certain it is: exact, assumed, ambiguous, or not one device."""
    note = row["note"]
    if not row["canonical"]:
        certainty = "none"
    elif note.startswith("ambiguous") or "memory size not stated" in note:
        certainty = "ambiguous"
    elif "assumed" in note:
        certainty = "assumed"
    else:
        certainty = "exact"
    return {**_same(row, "alias,canonical,note"), "certainty": certainty}


def _same(row: Cells, columns: str) -> Cells:
    return {column: row[column] for column in columns.split(",")}


def _scaled(cell: str, factor: int | Decimal) -> str:
    """Return the number times the factor, exactly, in plain notation; an empty cell stays empty."""
    if not cell:
        return ""
    text = f"{Decimal(cell) * factor:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _switched(cell: str) -> str:
    # "partial": fewer than all of a host's accelerators, still behind its switch.
    return "yes" if cell.startswith(("yes", "partial")) else "no"


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _region_key(row: Cells) -> tuple[str, str]:
    key = (row["provider"], row["region"])
    return (key[0], REGION_TYPOS.get(key, key[1]))
