"""Tables of machines in the form of SkyPilot 0.14's own, holding what gpuplan's catalogue names.

Regions, zones and machines are as SkyPilot lays them out; every price is far from gpuplan's, so
that a price that agrees was written by gpuplan.
"""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpuplan.catalog.snapshot import Catalogue
from gpuplan.catalog.types import Offer
from gpuplan.launcher.skypilot.placement import (
    ANYWHERE,
    LAMBDA_MACHINES,
    NAMED_INSTANCES,
    TPU_SLICES,
    skypilot_name,
)
from gpuplan.launcher.skypilot.price_tables import GCP_HOSTS

MACHINE_USD, SPOT_USD, GPUS_USD, HOST_USD = "777.7", "333.3", "111.1", "0.1"
COLUMNS = (
    "InstanceType",
    "AcceleratorName",
    "AcceleratorCount",
    "vCPUs",
    "MemoryGiB",
    "GpuInfo",
    "Price",
    "SpotPrice",
    "Region",
)
ZONED = {"aws": "{}{}", "gcp": "{}-{}", "runpod": "{}-{}"}
SOMEWHERE = ("region-one", "region-two")
"""Where a cloud sells that gpuplan knows by no region."""
SMALL = (8.0, 64.0)
"""Cores and GiB of a machine of which gpuplan knows neither: SkyPilot fails on empty ones."""
GPU_INFO = "{{'Gpus': [{{'Name': '{}', 'Count': {}, 'MemoryInfo': {{'SizeInMiB': 1}}}}]}}"


def write_tables(home: Path, catalogue: Catalogue, clouds: Iterable[str]) -> None:
    """Write SkyPilot's tables of some clouds below a home."""
    root = home / ".sky" / "catalogs" / "v8"
    names = {"H100"}
    for cloud in clouds:
        rows = [dict(row) for row in dict.fromkeys(map(_frozen, _rows(catalogue, cloud)))]
        names |= {row["AcceleratorName"] for row in rows if row["AcceleratorName"]}
        zone = ("AvailabilityZone",) if cloud in ZONED else ()
        generation = ("Generation",) if cloud == "azure" else ()
        _write(root / cloud / "vms.csv", (*COLUMNS, *zone, *generation), rows)
    listed = [{"AcceleratorName": name, "Clouds": "['AWS', 'GCP']"} for name in sorted(names)]
    _write(root / "common" / "accelerators.csv", ("AcceleratorName", "Clouds"), listed)
    known = [{"GPU": name, "MemoryGB": "1", "Manufacturer": "nvidia"} for name in sorted(names)]
    _write(root / "common" / "metadata.csv", ("GPU", "MemoryGB", "Manufacturer"), known)
    images = ("Tag", "Region", "OS", "OSVersion", "ImageId", "CreationDate")
    for cloud in clouds:
        _write(root / cloud / "images.csv", images, [])


def _frozen(row: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(row.items())


def _write(path: Path, columns: tuple[str, ...], rows: Iterable[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows(rows)


def _rows(catalogue: Catalogue, cloud: str) -> Iterator[dict[str, str]]:
    for offer in (*catalogue.offers, *catalogue.cpu_offers):
        if offer.skypilot_cloud == cloud and float(offer.accelerators).is_integer():
            for region in SOMEWHERE if offer.region in ANYWHERE else (offer.region,):
                for row in _machine(catalogue, offer, cloud):
                    yield from _in_zones(row, cloud, region)


def _in_zones(row: dict[str, str], cloud: str, region: str) -> Iterator[dict[str, str]]:
    row = {**row, "Region": region}
    if cloud == "azure":
        yield {**row, "Generation": "V2"}
    elif cloud in ZONED:
        for zone in "ab":
            yield {**row, "AvailabilityZone": ZONED[cloud].format(region, zone)}
    else:
        yield row


def _machine(catalogue: Catalogue, offer: Offer, cloud: str) -> Iterator[dict[str, str]]:
    """Yield the rows that SkyPilot has of one machine: on Google Cloud the GPUs' apart."""
    count, instance_type = int(offer.accelerators), offer.instance_type
    if offer.accelerator in TPU_SLICES:
        prefix, cores = TPU_SLICES[offer.accelerator]
        for chips in {count, 2 * count}:
            yield _row("TPU-VM", f"{prefix}-{chips * cores}", 1, SMALL, MACHINE_USD, SPOT_USD)
        return
    name = "" if offer.is_cpu else skypilot_name(offer.accelerator, cloud)
    size = catalogue.instances.get((offer.provider, instance_type))
    sizes = SMALL
    if size is not None and size.vcpus is not None and size.memory_bytes is not None:
        sizes = (size.vcpus, size.memory_bytes / 2**30)
    is_named = instance_type.startswith(NAMED_INSTANCES.get(cloud, "\0"))
    if cloud == "lambda" and offer.accelerator in LAMBDA_MACHINES and not is_named:
        instance_type = LAMBDA_MACHINES[offer.accelerator].format(count)
        yield _row(instance_type, name, count, sizes, MACHINE_USD, SPOT_USD)
        return
    if cloud == "gcp" and name:
        host = instance_type.partition("+")[0]
        usd = HOST_USD if "+" in instance_type else MACHINE_USD
        yield _row(host, "", 0, sizes, usd, usd)
        comes = next((GCP_HOSTS[start] for start in GCP_HOSTS if host.startswith(start)), name)
        yield _row(
            "", comes if "+" not in instance_type else name, count, SMALL, GPUS_USD, GPUS_USD
        )
    elif not name or is_named:
        yield _row(instance_type, name, count, sizes, MACHINE_USD, SPOT_USD)
    else:
        yield _row(f"{count}x_{name}_SECURE", name, count, SMALL, MACHINE_USD, SPOT_USD)


def _row(
    instance_type: str,
    name: str,
    count: int,
    sizes: tuple[float, float],
    usd: str,
    spot_usd: str,
) -> dict[str, str]:
    return {
        "InstanceType": instance_type,
        "AcceleratorName": name,
        "AcceleratorCount": f"{count}.0" if name else "",
        "vCPUs": str(sizes[0]) if instance_type else "",
        "MemoryGiB": str(sizes[1]) if instance_type else "",
        "GpuInfo": GPU_INFO.format(name, count) if name else "",
        "Price": usd,
        "SpotPrice": spot_usd,
    }
