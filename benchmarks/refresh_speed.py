"""Refresh prices of 31 regions of three providers from local servers: seconds and megabytes.

Run it with the clouds' own libraries:  .venv-clouds/bin/python benchmarks/refresh_speed.py
The servers answer from a process of their own, so that what is measured is gpuplan alone; the
budget is 60 s with the delays of the clouds, 5 s without, and 300 MB. The processor's time says
how much of the wall clock was spent waiting for other work of this machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

SUPPORT = Path(__file__).parents[1] / "tests" / "support"
REGIONS = 31
PROVIDERS = ("aws", "gcp", "azure")


def main() -> None:
    """Print what one refresh takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-s", type=float, default=0.0, help="of every answer")
    delay_s = parser.parse_args().delay_s
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(theirs, delay_s))
    server.start()
    try:
        _measure(ours.recv())
    finally:
        ours.send(None)
        server.join()


def _regions() -> dict[str, tuple[str, ...]]:
    from gpuplan.catalog.embedded import embedded_catalogue

    offers = embedded_catalogue().offers
    return {
        name: tuple(sorted({one.region for one in offers if one.provider == name}))[:REGIONS]
        for name in PROVIDERS
    }


def _serve(pipe: Connection, delay_s: float) -> None:
    sys.path.insert(0, str(SUPPORT))
    from clouds.aws import AwsWorld, price_row
    from clouds.azure import AzureWorld, meter
    from clouds.gcp import A3_IN_AMERICAS, GcpWorld, sku
    from clouds.server import Server

    names = _regions()
    aws, gcp, azure = AwsWorld(), GcpWorld(), AzureWorld()
    aws.regions = dict.fromkeys(names["aws"], "opt-in-not-required")
    aws.prices = [price_row("p5.48xlarge", name, "55.04") for name in names["aws"]]
    gcp.skus = [sku(name, *price, regions=names["gcp"]) for name, price in A3_IN_AMERICAS.items()]
    gcp.zones = {f"{name}-a": ["a3-highgpu-8g"] for name in names["gcp"]}
    azure.meters = [meter(98.32, name) for name in names["azure"]]

    def slow(world):
        def answer(request):
            time.sleep(delay_s)
            return world(request)

        return answer

    with Server(slow(aws)) as one, Server(slow(gcp)) as two, Server(slow(azure)) as three:
        azure.url = three.url
        pipe.send({"aws": one.url, "gcp": two.url, "azure": three.url})
        pipe.recv()


def _measure(urls: dict[str, str]) -> None:
    sys.path.insert(0, str(SUPPORT))
    from clouds import aws, azure, gcp

    from gpuplan.catalog.clouds import connect as connecting
    from gpuplan.catalog.clouds.aws.cloud import Aws
    from gpuplan.catalog.clouds.azure.cloud import Azure
    from gpuplan.catalog.clouds.gcp.cloud import Gcp
    from gpuplan.cli.main import run

    made = {
        "aws": lambda: Aws(aws.session(), endpoint_url=urls["aws"]),
        "gcp": lambda: Gcp(gcp.credentials(), project=gcp.PROJECT, api_endpoint=urls["gcp"]),
        "azure": lambda: Azure(
            credential=object(),
            subscription=azure.SUBSCRIPTION,
            base_url=urls["azure"],
            prices_url=f"{urls['azure']}/prices",
            authentication_policy=azure.policy(),
        ),
    }
    connecting.connect = lambda name: made[name]()
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUPLAN_HOME"] = home
        start_s, cpu_s = time.monotonic(), time.process_time()
        code = run(["prices", "refresh", "-q"])
        took_s, used_s = time.monotonic() - start_s, time.process_time() - cpu_s
    peak_bytes = _peak_bytes()
    print(
        f"{REGIONS} regions of {len(PROVIDERS)} providers: exit code {code}, {took_s:.1f} s,"
        f" {used_s:.1f} s of the processor, {peak_bytes / 1e6:.0f} MB"
    )


def _peak_bytes() -> int:
    """Return the most memory that this program had; `ru_maxrss` counts what started it, too."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
