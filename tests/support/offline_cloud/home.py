"""The person's home inside a cloud: credentials, SkyPilot's configuration and its catalogue."""

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from offline_cloud.network import ENDPOINT, REGION_NETWORKS, VPC

AWS_CONFIG = f"[default]\nregion = us-east-1\nendpoint_url = {ENDPOINT}\n"
CREDENTIALS = "[default]\naws_access_key_id = testing\naws_secret_access_key = testing\n"
"""A file, since SkyPilot does not carry variables to the machines, which take themselves down."""
SKY_CONFIG = f"""\
allowed_clouds: [aws]  # The others are not looked for, which takes half a minute.
aws:
  vpc_names: {VPC}
  use_internal_ips: true
  use_ssm: false  # Else SkyPilot waits for AWS's own tunnel for ever.
  remote_identity: LOCAL_CREDENTIALS
"""
WITHOUT_CONTROLLER = """\
jobs:
  controller:
    consolidation_mode: true  # Managed jobs are watched by the API server, not by a machine.
"""
AMI = "ami-05c1ffffffffffff1"
IMAGE_TAGS = (
    "skypilot:custom-cpu-ubuntu",
    "skypilot:custom-gpu-ubuntu",
    "skypilot:custom-gpu-ubuntu-cuda13",
)
MACHINES = (
    # type, accelerator, count, vCPUs, memory GiB, memory of one accelerator MiB, $/h, $/h on spot
    ("m6i.large", "", 0, 2, 8, 0, 0.096, 0.038),
    ("m6i.xlarge", "", 0, 4, 16, 0, 0.192, 0.076),  # SkyPilot's controller of managed jobs.
    ("m6i.2xlarge", "", 0, 8, 32, 0, 0.384, 0.15),
    ("c7i.48xlarge", "", 0, 192, 384, 0, 8.568, 3.4),
    ("c7a.48xlarge", "", 0, 192, 384, 0, 9.85344, 3.9),
    ("g6.xlarge", "L4", 1, 4, 16, 24576, 0.8048, 0.36),
    ("p4d.24xlarge", "A100", 8, 96, 1152, 40960, 21.957642, 11.2),
    ("p5.48xlarge", "H100", 8, 192, 2048, 81920, 55.04, 22.0),
)
"""Prices are the fixture's own, no quotation."""
REGIONS = {"us-east-1": ("use1", 1.0), "us-west-2": ("usw2", 1.0), "eu-west-1": ("euw1", 1.11)}
"""For each region: how its zones begin, and what its prices are multiplied by."""


def make_command(folder: Path) -> None:
    """Write the `gpuplan` of a cloud, whose Python has no space in its path.

    SkyPilot asks for managed jobs in a shell line that does not bear one.
    """
    (folder / "venv").symlink_to(Path(sys.executable).parents[1])
    (folder / "bin").mkdir()
    command = folder / "bin" / "gpuplan"
    command.write_text(f'#!/bin/sh\nexec {folder}/venv/bin/python -m gpuplan "$@"\n')
    command.chmod(0o755)


def make_home(home: Path, *, with_controller: bool) -> None:
    """Write a home whose SkyPilot uses the fake AWS and asks the network for no catalogue."""
    for path, text in {
        ".aws/config": AWS_CONFIG,
        ".aws/credentials": CREDENTIALS,
        ".sky/config.yaml": SKY_CONFIG + ("" if with_controller else WITHOUT_CONTROLLER),
    }.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)
    (home / ".ssh").mkdir(mode=0o700)
    _write_catalogue(home / ".sky" / "catalogs" / "v8")


def _write_catalogue(root: Path) -> None:
    """Write what SkyPilot would download. No checksum lies beside it, so it is never refreshed."""
    names = {row[1]: row[5] for row in MACHINES if row[1]}
    columns = "InstanceType AcceleratorName AcceleratorCount vCPUs MemoryGiB GpuInfo Price"
    columns += " SpotPrice Region AvailabilityZone Arch"
    _write(root / "aws/vms.csv", columns, [row for machine in MACHINES for row in _rows(machine)])
    images = [
        [tag, region, "ubuntu", "22.04", AMI, "20241104", ""]
        for region in REGION_NETWORKS
        for tag in IMAGE_TAGS
    ]
    columns = "Tag Region OS OSVersion ImageId CreationDate BaseImageId"
    _write(root / "aws/images.csv", columns, images)
    columns = "InstanceType OnDemandInstanceCode SpotInstanceCode"
    _write(root / "aws/instance_quota_mapping.csv", columns, [])
    clouds = [[name, "['AWS']"] for name in names]
    _write(root / "common/accelerators.csv", "AcceleratorName Clouds", clouds)
    memory = [[name, mib / 1024, "nvidia"] for name, mib in names.items()]
    _write(root / "common/metadata.csv", "GPU MemoryGB Manufacturer", memory)


def amis() -> str:
    """Return the images that moto shall know, as it reads them."""
    image = {
        "ami_id": AMI,
        "name": "offline",
        "description": "offline",
        "owner_id": "123456789012",
        "public": True,
        "state": "available",
        "image_location": "offline",
        "image_type": "machine",
        "architecture": "x86_64",
        "platform": None,
        "hypervisor": "xen",
        "virtualization_type": "hvm",
        "sriov": "simple",
        "root_device_type": "ebs",
        "root_device_name": "/dev/sda1",
        "creation_date": "2024-11-04T00:00:00.000Z",
    }
    return json.dumps([image])


def _rows(machine: tuple[str, str, int, int, int, int, float, float]) -> list[list[object]]:
    name, accelerator, count, cpus, memory_gib, gpu_mib, price, spot = machine
    gpu = {"Name": accelerator, "Manufacturer": "NVIDIA", "Count": float(count)}
    gpus = [gpu | {"MemoryInfo": {"SizeInMiB": gpu_mib}}]
    info = {"Gpus": gpus, "TotalGpuMemoryInMiB": count * gpu_mib}
    hardware = [name, accelerator, count or "", float(cpus), float(memory_gib)]
    return [
        [
            *hardware,
            str(info) if accelerator else "",
            round(price * factor, 5),
            round(spot * factor, 5),
            region,
            f"{zones}-az{zone}",
            "x86_64",
        ]
        for region, (zones, factor) in REGIONS.items()
        for zone in (1, 2)
    ]


def _write(path: Path, columns: str, rows: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns.split(), *rows])
