"""gpuhunt itself against a local server: `make test-clouds`."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from clouds.hosted import HostedWorld, ListedWorld, hosted, plan
from clouds.server import Answer, Server

from gpuplan.catalog.clouds.asking import Patience
from gpuplan.catalog.clouds.interface import CloudError
from gpuplan.catalog.clouds.sellers import hosted as hosting
from gpuplan.catalog.clouds.sellers.hosted import HostedSeller
from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.catalog.price_folder import snapshot_files
from gpuplan.catalog.prices.refresh import asked_of
from gpuplan.cli.main import run

NOW = datetime(2026, 11, 23, 18, tzinfo=UTC)
HASTY = Patience(answer_timeout_s=1.0, connect_timeout_s=1.0, regions_timeout_s=10.0)
"""For answers that hang."""


@pytest.fixture(autouse=True)
def _needs(require) -> None:
    require("cloud-clients", "gpuhunt is not installed: make test-clouds installs it")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostedWorld]:
    found = HostedWorld()
    hosting.shared_catalogue.cache_clear()
    with Server(found) as server:
        monkeypatch.setenv("GPUHUNT_CATALOG_URL", server.url)
        yield found


def offers(name: str, patience: Patience | None = None):
    asked = asked_of(embedded_catalogue(), name, now=NOW)
    return HostedSeller(name, patience=patience).offers(asked, lambda *_: None)


def test_prices_of_a_seller_with_the_date_of_their_catalogue(world) -> None:
    prices = offers("lambda")
    found = {one.instance_type: one.usd_per_hour for one in prices.rows}
    assert found == {
        "gpu_8x_h100_sxm5": Decimal("31.92"),
        "lambda-h100-sxm-on-demand": Decimal("4.29"),
    }
    assert {one.price_date.isoformat() for one in prices.rows} == {"2026-11-22"}
    assert prices.unmapped == ("gpu_4x_h100_sxm5 (4 x H100, on-demand)",)


def test_one_table_is_read_once_for_all_sellers(world) -> None:
    offers("lambda")
    assert {one.purchase for one in offers("nebius").rows} == {"on-demand", "spot"}
    assert sum(path.endswith("lambdalabs/20261122-7/catalog.zip") for path in world.paths) == 1


@pytest.mark.parametrize(
    "fault",
    [
        Answer(b"", 404),
        Answer(b"busy", 503),
        Answer(b"PK\x03\x04 cut"),
        Answer(b"PK", claimed_bytes=900),
        Answer(b"", delay_s=60.0),
    ],
    ids=["gone", "busy", "damaged", "cut off", "hangs"],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_table_that_is_not_whole_is_no_price(world, fault) -> None:
    world.faults = lambda path: fault if "lambdalabs" in path else None
    with pytest.raises(CloudError, match="does not answer for it"):
        offers("lambda", HASTY)
    assert len(offers("nebius").rows) == 2


def test_when_nothing_is_hosted_the_reason_is_said(world) -> None:
    world.faults = lambda _path: Answer(b"", 403)
    with pytest.raises(CloudError, match="catalogue does not answer"):
        offers("verda")


def test_prices_without_a_date_are_none(world) -> None:
    world.version = "latest"
    with pytest.raises(CloudError, match="has no date"):
        offers("lambda")


def test_a_refresh_goes_through_the_same_gate(world, capsys) -> None:
    world.tables["lambdalabs"] = [
        hosted("gpu_8x_h100_sxm5", "us-east-1", "31.92"),
        hosted("gpu_1x_a10", "us-east-1", "129.0", 1, gpu_name="A10", gpu_memory="24.0"),
        hosted("gpu_8x_v100_n", "us-east-1", "0", gpu_name="V100", gpu_memory="16.0"),
    ]
    command = ["prices", "refresh", "--provider", "lambda,nebius", "--format", "json"]
    assert run(command) == 0
    said = json.loads(capsys.readouterr().out)
    states = {one["provider"]: one for one in said["providers"]}
    assert states["lambda"]["refused"] == {"not-positive": 1, "outlier": 1}
    assert states["lambda"]["rows"] == 1 and states["nebius"]["rows"] == 1
    assert len(snapshot_files()) == 1


CANARY_KEY = "VULTRCANARYKEY0123456789"


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> Iterator[ListedWorld]:
    found = ListedWorld()
    monkeypatch.setenv("VULTR_API_KEY", CANARY_KEY)
    with Server(found) as server:
        monkeypatch.setattr("gpuhunt.providers.vastai.bundles_url", f"{server.url}/bundles/")
        monkeypatch.setattr("gpuhunt.providers.vultr.API_URL", server.url)
        yield found


def test_a_marketplace_has_the_middle_of_what_is_asked_and_no_bid(lists) -> None:
    prices = offers("vast-ai")
    [row] = prices.rows
    assert row.instance_type == "vast-ai-rtx-4090-on-demand"
    # Of its disk there is a gigabyte in the price, not all of its terabytes.
    assert float(row.usd_per_hour) == pytest.approx(0.31, abs=0.001)
    assert [one.rule for one in prices.refused] == ["marketplace-bid"]


def test_plans_of_vultr_are_those_of_the_table(lists) -> None:
    lists.plans.append(plan("vcg-l40s-2c-8g-6vram", 0.2, "NVIDIA_L40S", 6))
    prices = offers("vultr")
    assert [(one.instance_type, one.usd_per_hour) for one in prices.rows] == [
        ("vultr-l40s-on-demand", Decimal("1.67"))
    ]
    assert prices.unmapped == ("vcg-l40s-2c-8g-6vram (1 x L40S, on-demand)",)


@pytest.mark.parametrize(
    "fault",
    [
        Answer(CANARY_KEY.encode(), 403),
        Answer(b"busy", 503),
        Answer(b'{"offers": [{"id"'),
        Answer(b"{}"),
        Answer(b'{"offers": 7, "plans": 7, "plans_metal": 7}'),
        Answer(b"{", claimed_bytes=900),
    ],
    ids=["denied", "busy", "damaged", "empty", "odd", "cut off"],
)
@pytest.mark.parametrize("name", ["vast-ai", "vultr"])
def test_a_list_that_fails_is_no_price_and_no_secret_is_sent_or_said(
    lists, fault, name: str, capsys
) -> None:
    lists.fault = fault
    assert run(["prices", "refresh", "--provider", name]) == 5
    said = capsys.readouterr()
    assert f"{name}: " in said.err and "Traceback" not in said.err
    assert CANARY_KEY not in said.out + said.err
    assert not any(CANARY_KEY in str(headers) for headers in lists.headers)
    assert snapshot_files() == []


def test_a_list_that_hangs_is_not_waited_for(lists) -> None:
    lists.fault = Answer(b"", delay_s=60.0)
    hasty = Patience(regions_timeout_s=0.2)
    asked = asked_of(embedded_catalogue(), "vast-ai", now=NOW)
    with pytest.raises(CloudError, match="no answer within"):
        HostedSeller("vast-ai", patience=hasty).offers(asked, lambda *_: None)


def test_a_refreshed_marketplace_is_still_one(lists, capsys) -> None:
    assert run(["prices", "refresh", "--provider", "vast-ai,vultr", "--format", "json"]) == 0
    capsys.readouterr()
    words = ["offers", "--provider", "vast-ai", "--accelerator", "RTX-4090", "--format", "json"]
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)["offers"]
    fresh = [one for one in found if one["price_basis"] == "refreshed"]
    assert [one["marketplace"] for one in fresh] == [True]
