"""Reads tasks as SkyPilot does: python sky_tasks.py HOME TASK.yaml…, a line of JSON for each.

SkyPilot looks machines up in tables that it would download. Tables of our own take their place: a
file without its checksum beside it counts as the person's own, and is never fetched again
(sky/catalog/common.py of SkyPilot 0.14).
"""

import csv
import json
import os
import sys
from pathlib import Path

MACHINES = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone"  # noqa: E501
GPUS = "{'Gpus': [{'Name': '%s', 'Count': %s, 'MemoryInfo': {'SizeInMiB': 1}}], 'TotalGpuMemoryInMiB': 1}"  # noqa: E501
AWS = [
    ("p4d.24xlarge", "A100", 8, 96, 1152, region, f"{region}{zone}")
    for region in ("us-east-1", "us-west-2")
    for zone in "ab"
]
GCP = [
    ("n1-standard-16", "", "", 16, 60, "us-central1", "us-central1-a"),
    ("n1-standard-16", "", "", 16, 60, "europe-west4", "europe-west4-a"),
    ("", "T4", 2, "", "", "us-central1", "us-central1-a"),
    ("", "T4", 2, "", "", "europe-west4", "europe-west4-a"),
    ("TPU-VM", "tpu-v5litepod-8", 1, "", "", "europe-west4", "europe-west4-a"),
]
AZURE = [("Standard_ND96asr_v4", "A100", 8, 96, 900, "eastus", "1")]
TABLES = {"aws": AWS, "gcp": GCP, "azure": AZURE}


def write_tables(home: Path) -> None:
    """Write the tables of machines below a home."""
    root = home / ".sky" / "catalogs" / "v8"
    for cloud, rows in TABLES.items():
        path = root / cloud / "vms.csv"
        path.parent.mkdir(parents=True)
        with path.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(MACHINES.split(","))
            for kind, name, count, cores, memory, region, zone in rows:
                gpus = GPUS % (name, count) if name else ""
                writer.writerow([kind, name, count, cores, memory, gpus, 1, 0.5, region, zone])
    names = {str(row[1]) for rows in TABLES.values() for row in rows if row[1]} | {"H100"}
    (root / "common").mkdir()
    listed = [f"{name},\"['AWS', 'GCP', 'Azure', 'Kubernetes']\"" for name in sorted(names)]
    text = "\n".join(["AcceleratorName,Clouds", *listed, ""])
    (root / "common" / "accelerators.csv").write_text(text)
    facts = "\n".join(["GPU,MemoryGB,Manufacturer", *(f"{name},1,nvidia" for name in names), ""])
    (root / "common" / "metadata.csv").write_text(facts)


def main(home: str, *paths: str) -> None:
    """Read every task in a home of its own."""
    os.environ |= {"HOME": home, "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    write_tables(Path(home))
    from sky.utils import dag_utils  # pyright: ignore[reportMissingImports]

    # As `sky launch` and `sky jobs launch` read a file, which may hold two tasks.
    for task in (task for path in paths for task in dag_utils.load_chain_dag_from_yaml(path).tasks):
        (first, *_) = task.resources
        for storage in task.storage_mounts.values():
            # What SkyPilot asks of a bucket's address, once machines are there.
            storage._validate_source(storage.source, storage.mode, True)
        print(
            json.dumps(
                {
                    "name": task.name,
                    "nodes": task.num_nodes,
                    "run": task.run,
                    "setup": task.setup,
                    "places": sorted(str(one.infra) for one in task.resources),
                    "clouds": sorted({str(one.cloud) for one in task.resources}),
                    "spot": first.use_spot,
                    "instance_type": first.instance_type,
                    "accelerators": first.accelerators,
                    "envs": dict(task.envs),
                    "mounts": sorted([*(task.file_mounts or {}), *task.storage_mounts]),
                    "folders": {
                        path: storage._bucket_sub_path
                        for path, storage in task.storage_mounts.items()
                    },
                }
            )
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
