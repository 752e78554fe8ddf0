"""Rows of the tables that a snapshot is built from, as they are gathered."""

import csv
from pathlib import Path

Cells = dict[str, str]


def _row(text: str, changes: Cells) -> Cells:
    pairs = (line.split("=", 1) for line in text.strip().splitlines())
    row = {name.strip(): cell.strip() for name, cell in pairs}
    assert changes.keys() <= row.keys(), f"no such column: {changes.keys() - row.keys()}"
    return {**row, **changes}


def accelerator(**changes: str) -> Cells:
    """Return a row of `accelerators.csv`."""
    return _row(
        """
        name=A100-80GB-SXM
        vendor=NVIDIA
        arch=Ampere
        form_factor=SXM4
        memory_type=HBM2e
        memory_gib_nominal=80
        memory_visible_mib=81920
        memory_visible_source=nvidia-smi
        mem_bw_gbs=2039
        fp64_tflops=9.7
        fp32_tflops=19.5
        tf32_tflops=156
        fp16_tflops=312
        bf16_tflops=312
        fp8_tflops=
        fp4_tflops=
        int8_tops=624
        sm_or_cu=108 SM
        boost_mhz=1410
        l2_mb=40
        link=NVLink3
        link_unidir_gbs=300
        tdp_w=400
        compute_capability=8.0
        launch_year=2020
        confidence=high
        licence=datasheet
        source=datasheet
        note=
        """,
        changes,
    )


def instance(**changes: str) -> Cells:
    """Return a row of `instances.csv`."""
    return _row(
        """
        provider=aws
        instance_type=p4de.24xlarge
        accelerator=A100-80GB-SXM
        accelerators_per_instance=8
        vcpus=96
        memory_gib=1152
        intra_link=NVLink3
        intra_link_unidir_gbs_per_acc=300
        nvswitch=yes
        inter_node_fabric=EFA
        inter_node_gbps_per_node=400
        rdma=yes (EFA)
        local_nvme_gb=8000
        cluster_placement=yes
        usage_classes=on-demand|spot
        basis=stated
        confidence=high
        licence=mit
        source=docs
        note=
        """,
        changes,
    )


def offer(**changes: str) -> Cells:
    """Return a row of `offers.csv`."""
    return _row(
        """
        provider=aws
        region=us-east-1
        instance_type=p4de.24xlarge
        accelerator=A100-80GB-SXM
        accelerator_count=8
        on_demand_usd_per_hour=40.96
        spot_usd_per_hour=12.29
        spot_information=market
        price_basis=list
        snapshot_date=2026-08-01
        date_precision=day
        marketplace=no
        skypilot_cloud=aws
        licence=apache-2.0
        source=catalog
        note=
        """,
        changes,
    )


def provider(**changes: str) -> Cells:
    """Return a row of `providers.csv`."""
    return _row(
        """
        provider=aws
        skypilot_cloud=aws
        marketplace=no
        billing_increment_s=1
        minimum_s=60
        pue=1.135
        hipaa_eligible=yes
        home_jurisdiction=us
        source=docs
        """,
        changes,
    )


def grid(**changes: str) -> Cells:
    """Return a row of `regions.csv`: how clean the power of a region is."""
    return _row(
        """
        provider=aws
        region=us-east-1
        grid_gco2e_per_kwh=400
        data_year=2024
        source=map
        """,
        changes,
    )


def place(**changes: str) -> Cells:
    """Return a row of `region_countries.csv`."""
    return _row(
        """
        provider=aws
        region=us-east-1
        country=us
        source=list
        """,
        changes,
    )


def alias(**changes: str) -> Cells:
    """Return a row of `aliases.csv`."""
    return _row("alias=A100\ncanonical=A100-80GB-SXM\nnote=", changes)


def commitment(**changes: str) -> Cells:
    """Return a row of `commitments.csv`."""
    return _row(
        """
        provider=aws
        region=us-east-1
        instance_type=p4de.24xlarge
        term_years=1
        usd_per_hour=25.3
        date=2026-08-01
        source=catalog
        """,
        changes,
    )


def storage(**changes: str) -> Cells:
    """Return a row of `storage_egress.csv`."""
    return _row(
        """
        provider=aws
        region=us-east-1
        item=object_storage_usd_per_gb_month
        tier=
        usd=0.023
        source=docs
        """,
        changes,
    )


def spot_interruption(**changes: str) -> Cells:
    """Return a row of `aws_spot_interruption.csv`."""
    return _row(
        """
        region=us-east-1
        instance_type=p4de.24xlarge
        monthly_interruption_min_percent=5
        monthly_interruption_max_percent=10
        saving_over_on_demand_percent=70
        source=advisor
        """,
        changes,
    )


def write_tables(folder: Path, **tables: list[Cells]) -> Path:
    """Return the folder, with one row in each table unless others are given."""
    rows = {
        "accelerators": [accelerator()],
        "instances": [instance()],
        "offers": [offer()],
        "providers": [provider()],
        "regions": [grid()],
        "aliases": [alias()],
        "commitments": [commitment()],
        "storage_egress": [storage()],
        "aws_spot_interruption": [spot_interruption()],
    }
    assert tables.keys() <= rows.keys()
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in {**rows, **tables}.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[name][0]))
            writer.writeheader()
            writer.writerows(table)
    return folder
