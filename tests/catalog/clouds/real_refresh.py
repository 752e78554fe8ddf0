"""Whole commands with all three client libraries: speed, secrets, and what reaches the snapshot."""

import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clouds import aws as aws_side
from clouds import azure as azure_side
from clouds import gcp as gcp_side
from clouds.aws import AwsWorld, aws_error, price_row
from clouds.azure import SIZE, AzureWorld, azure_error, meter
from clouds.gcp import A3_IN_AMERICAS, GcpWorld, gcp_error, sku
from clouds.server import Answer, Server

from gpuplan.catalog.clouds import connect as connecting
from gpuplan.catalog.clouds.asking import Patience
from gpuplan.catalog.clouds.aws.cloud import Aws
from gpuplan.catalog.clouds.azure.cloud import Azure
from gpuplan.catalog.clouds.gcp.cloud import Gcp
from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.catalog.price_folder import snapshot_files
from gpuplan.cli.main import run

HASTY = Patience(
    tries=2,
    first_pause_s=0.0,
    answer_timeout_s=10.0,
    connect_timeout_s=10.0,
    regions_timeout_s=30.0,
)
CANARIES = (
    aws_side.CANARY_KEY,
    aws_side.CANARY_SECRET,
    gcp_side.CANARY_TOKEN,
    azure_side.CANARY_TOKEN,
)
MODEL = """
import torch

def build_model():
    return torch.nn.Linear(64, 64)

def make_batch(batch_size):
    return {"input": torch.randn(batch_size, 64)}

def compute_loss(model, batch):
    return model(batch["input"]).square().mean()
"""
PROJECT = """
name: nodes alone
start: 2027-01
months: 12
experiments:
  course: {provider: gcp, instance: a2-highgpu-1g, hours: 200}
"""
COMMANDS = (
    ["prices", "refresh"],
    ["prices", "refresh", "--format", "json"],
    ["prices"],
    ["capacity", "--accelerator", "H100:8", "--region", "us-east-1,us-central1,eastus"],
    ["capacity", "--accelerator", "H100:8", "--spot", "--block", "24h", "--format", "json"],
    ["capacity", "--accelerator", "TPU-v6e:8", "--provider", "gcp"],
    ["capacity", "project.yaml"],
    ["prices", "diff"],
    ["prices", "history", "H100:8"],
    ["estimate", "model.py", "--samples", "1M", "--reprice", "--check-capacity"],
    ["prices", "refresh", "--region", "us-east-1"],
)


class Worlds:
    """All three clouds, and gpuplan connected to them."""

    def __init__(self) -> None:
        self.aws, self.gcp, self.azure = AwsWorld(), GcpWorld(), AzureWorld()

    def break_all(self, aws: Answer, gcp: Answer, azure: Answer) -> None:
        self.aws.faults = lambda *_: aws
        self.gcp.faults = lambda *_: gcp
        self.azure.faults = lambda *_: azure


@pytest.fixture(autouse=True)
def _needs(require) -> None:
    require("cloud-clients", "the client libraries are not installed: make test-clouds does it")


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "project.yaml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def worlds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worlds]:
    found = Worlds()
    with Server(found.aws) as aws, Server(found.gcp) as gcp, Server(found.azure) as azure:
        found.azure.url = azure.url
        made = {
            "aws": lambda: Aws(aws_side.session(), patience=HASTY, endpoint_url=aws.url),
            "gcp": lambda: Gcp(
                gcp_side.credentials(),
                project=gcp_side.PROJECT,
                patience=HASTY,
                api_endpoint=gcp.url,
            ),
            "azure": lambda: Azure(
                credential=object(),
                subscription=azure_side.SUBSCRIPTION,
                patience=HASTY,
                base_url=azure.url,
                prices_url=f"{azure.url}/prices",
                authentication_policy=azure_side.policy(),
            ),
        }
        monkeypatch.setattr(connecting, "connect", lambda name: made[name]())
        yield found


def test_one_refresh_of_all_three(worlds, capsys) -> None:
    assert run(["prices", "refresh", "--format", "json"]) == 0
    snapshot = json.loads(capsys.readouterr().out)
    assert run(["offers", "--accelerator", "H100:8", "--format", "json"]) == 0
    found = {
        (one["provider"], one["region"], one["instance_type"]): one
        for one in json.loads(capsys.readouterr().out)["offers"]
        if one["price_basis"] == "refreshed"
    }
    assert len(found) == snapshot["offers"]
    assert found["aws", "us-east-1", "p5.48xlarge"]["on_demand_usd_per_hour"] == 55.04
    gcp = found["gcp", "us-central1", "a3-highgpu-8g"]
    assert round(gcp["on_demand_usd_per_hour"], 2) == 88.49
    assert found["azure", "eastus", SIZE]["spot_usd_per_hour"] == 21.5
    assert {one["provider"]: one["commitments"] for one in snapshot["providers"]} == {
        "aws": 2,
        "azure": 1,
        "gcp": 0,
    }
    assert [one["evictions"] for one in snapshot["providers"]] == [0, 4, 0]
    assert [one["is_kept"] for one in snapshot["providers"]] == [False, False, False]


@pytest.mark.parametrize(
    "broken",
    [
        (aws_error("AccessDeniedException", 400), gcp_error(403), azure_error(403)),
        (aws_error("ExpiredToken", 400), gcp_error(401), azure_error(401)),
        (aws_error("ServiceUnavailable", 503), gcp_error(503), azure_error(429)),
        (Answer(b"{"), Answer(b"{"), Answer(b"{")),
        (Answer(b"<a", kind="text/xml", claimed_bytes=99),) * 3,
        (Answer(aws_side.CANARY_SECRET.encode(), 418),) * 3,
    ],
    ids=["denied", "expired", "busy", "damaged", "cut off", "odd"],
)
def test_no_secret_is_printed_or_written_whatever_fails(
    worlds, broken, gpuplan_home: Path, capsys
) -> None:
    worlds.break_all(*broken)
    for command in COMMANDS:
        assert run(command) in (0, 3, 5), command
        said = capsys.readouterr()
        assert "Traceback" not in said.err and "itself failed" not in said.err
        for canary in CANARIES:
            assert canary not in said.out + said.err
    assert snapshot_files() == []
    for path in gpuplan_home.rglob("*"):
        text = path.read_text("utf-8", "replace") if path.is_file() else ""
        assert not any(canary in text for canary in CANARIES), path


def test_no_secret_is_written_where_all_goes_well(worlds, gpuplan_home: Path, capsys) -> None:
    for command in COMMANDS:
        assert run(command) == 0, command
        said = capsys.readouterr()
        assert not any(canary in said.out + said.err for canary in CANARIES)
    files = [path for path in gpuplan_home.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert not any(canary in path.read_text("utf-8", "replace") for canary in CANARIES)


def test_no_wrong_price_reaches_the_snapshot(worlds, capsys) -> None:
    worlds.aws.prices = [
        price_row("p5.48xlarge", "us-east-1", usd)
        for usd in ("0.0000000000", "NaN", "5504.0000000000")
    ]
    worlds.aws.spot = {"us-east-1": [("us-east-1a", "0"), ("us-east-1b", "Infinity")]}
    worlds.gcp.skus = [
        sku("Nvidia H100 80GB GPU running in Americas", units=980),
        *(
            sku(name, *price)
            for name, price in A3_IN_AMERICAS.items()
            if not name.startswith("Nvidia")
        ),
    ]
    worlds.azure.meters = [meter(usd) for usd in (0.0, float("nan"), 9832.0)]
    assert run(["prices", "refresh"]) == 5
    assert snapshot_files() == []


REGIONS = 31


def test_31_regions_of_three_providers_take_a_minute_at_most(worlds, capsys) -> None:
    names = {
        provider: tuple(sorted({o.region for o in embedded_catalogue().offers
                                if o.provider == provider}))[:REGIONS]
        for provider in ("aws", "gcp", "azure")
    }  # fmt: skip
    worlds.aws.regions = dict.fromkeys(names["aws"], "opt-in-not-required")
    worlds.aws.prices = [price_row("p5.48xlarge", name, "55.04") for name in names["aws"]]
    worlds.gcp.skus = [
        sku(name, *price, regions=names["gcp"]) for name, price in A3_IN_AMERICAS.items()
    ]
    worlds.gcp.zones = {f"{name}-a": ["a3-highgpu-8g"] for name in names["gcp"]}
    worlds.azure.meters = [meter(98.32, name) for name in names["azure"]]
    start_s = time.monotonic()
    assert run(["prices", "refresh", "-q"]) == 0
    took_s = time.monotonic() - start_s
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"31 regions of three providers: {took_s:.1f} s, {peak_bytes / 1e6:.0f} MB")
    assert took_s < 60.0


def test_31_regions_of_three_providers_take_300_megabytes_at_most() -> None:
    # In a process of its own: this one holds the servers and every other test's libraries.
    benchmark = Path(__file__).parents[3] / "benchmarks" / "refresh_speed.py"
    ran = subprocess.run(
        [sys.executable, str(benchmark)], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    found = re.search(r"exit code 0, .* (\d+) MB", ran.stdout)
    assert found is not None, ran.stdout
    assert int(found[1]) <= 300
