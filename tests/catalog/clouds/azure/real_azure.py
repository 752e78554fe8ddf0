"""azure-mgmt-compute itself, and the price list, against a local server: `make test-clouds`."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from importlib import import_module

import pytest
from clouds.azure import (
    CANARY_TOKEN,
    GRAPH_PATH,
    SIZE,
    SUBSCRIPTION,
    AzureWorld,
    azure_error,
    eviction,
    meter,
    policy,
    reserved,
)
from clouds.server import Answer, Server

from gpuplan.catalog.clouds.asking import Patience
from gpuplan.catalog.clouds.azure.cloud import Azure
from gpuplan.catalog.clouds.interface import Asked, CloudError
from gpuplan.catalog.embedded import embedded_catalogue

NOW = datetime(2026, 11, 23, 18, tzinfo=UTC)
DAMAGED = "the answer is cut off or damaged"
HASTY = Patience(first_pause_s=0.0, answer_timeout_s=10.0, connect_timeout_s=10.0)


@pytest.fixture(autouse=True)
def _needs(require) -> None:
    require("cloud-clients", "azure-mgmt-compute is not installed: make test-clouds does it")


@pytest.fixture
def world() -> AzureWorld:
    return AzureWorld()


@pytest.fixture
def server(world: AzureWorld) -> Iterator[Server]:
    with Server(world) as running:
        world.url = running.url
        yield running


def azure_at(server: Server, patience: Patience = HASTY) -> Azure:
    return Azure(
        credential=object(),  # Signed by the policy; the library wants one all the same.
        subscription=SUBSCRIPTION,
        patience=patience,
        base_url=server.url,
        prices_url=f"{server.url}/prices",
        authentication_policy=policy(),
    )


@pytest.fixture
def azure(server: Server) -> Azure:
    return azure_at(server)


def asked(**changes) -> Asked:
    instances = {SIZE: embedded_catalogue().instances["azure", SIZE]}
    given = {"instances": instances, "regions": ("eastus", "westus3"), "now": NOW}
    return Asked(**(given | changes))


def no_tell(_what: str, _done: int | None, _total: int | None) -> None:
    pass


def test_prices_over_pages_without_those_of_windows(azure) -> None:
    prices = azure.offers(asked(), no_tell)
    found = {(one.region, one.purchase): one.usd_per_hour for one in prices.rows}
    assert found == {
        ("eastus", "on-demand"): Decimal("98.32"),
        ("westus3", "on-demand"): Decimal("98.32"),
        ("eastus", "spot"): Decimal("21.5"),
    }
    assert [one.rule for one in prices.refused] == ["azure-windows"]


def test_a_page_at_another_address_is_not_followed(azure, world) -> None:
    world.url = "http://elsewhere.invalid"
    with pytest.raises(CloudError, match="another address"):
        azure.offers(asked(), no_tell)


def test_prices_need_no_subscription(server) -> None:
    azure = Azure(subscription=None, patience=HASTY, prices_url=f"{server.url}/prices")
    prices = azure.offers(asked(), no_tell)
    assert len(prices.rows) == 3 and prices.evictions == ()
    [silent] = prices.unanswered
    assert (silent.question, silent.why) == ("evictions", "no Azure subscription is named")


def test_eviction_rates_over_pages_are_chances_per_hour(azure, world) -> None:
    prices = azure.offers(asked(), no_tell)
    found = {one.region: (one.hourly_low, one.hourly_high) for one in prices.evictions}
    assert found == {"eastus": (0.15, 0.2), "westus3": (0.0, 0.05)}
    assert {one.instance_type for one in prices.evictions} == {SIZE}
    assert world.paths.count(f"POST {GRAPH_PATH}") == 2


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (azure_error(403), "not permitted: needs Microsoft.ResourceGraph/resources/read"),
        (azure_error(401), "the Azure login has expired"),
        (azure_error(429), "Azure is too busy"),
        (Answer(b'{"data": [{"sku'), DAMAGED),
        (Answer(b'{"totalRecords": 2, "count": 2, "data": []}'), DAMAGED),
        (Answer(b'{"totalRecords": 2}'), DAMAGED),
    ],
    ids=["denied", "expired", "busy", "cut off", "fewer rows", "no rows"],
)
def test_without_eviction_rates_the_prices_are_answered(azure, world, fault, said) -> None:
    world.faults = lambda path: fault if path == GRAPH_PATH else None
    prices = azure.offers(asked(), no_tell)
    [silent] = prices.unanswered
    assert (silent.question, silent.text) == ("evictions", said)
    assert len(prices.rows) == 3 and prices.evictions == ()


def test_a_band_of_another_spelling_is_refused_by_name(azure, world) -> None:
    world.evictions = [eviction("up to 5", "eastus"), eviction("0-5", "westus3")]
    prices = azure.offers(asked(), no_tell)
    assert [one.region for one in prices.evictions] == ["westus3"]
    assert "azure-eviction-band" in [one.rule for one in prices.refused]


@pytest.mark.parametrize("status", [429, 503])
def test_a_throttle_is_waited_out(azure, world, status: int) -> None:
    left = [2]

    def faults(_path: str) -> Answer | None:
        left[0] -= 1
        return azure_error(status) if left[0] >= 0 else None

    world.faults = faults
    assert len(azure.quota(asked(regions=("eastus",)), no_tell).quotas) == 1
    left[0] = 2
    assert len(azure.offers(asked(), no_tell).rows) == 3


@pytest.mark.parametrize(
    ("fault", "why", "permission"),
    [
        (azure_error(401), "the Azure login has expired", None),
        (azure_error(403), "not permitted", "Microsoft.Compute/skus/read"),
        (Answer(b'{"value": [{"res', claimed_bytes=900), None, None),
        (Answer(b'{"value": [{"res'), "the answer is cut off or damaged", None),
        (Answer(b"", delay_s=60.0), "no answer in time", None),
    ],
)
def test_a_failure_has_a_reason_and_no_secret(server, world, fault, why, permission) -> None:
    world.faults = lambda _path: fault
    hasty = Patience(tries=2, first_pause_s=0.0, answer_timeout_s=0.5, connect_timeout_s=2.0)
    quotas = azure_at(server, hasty).quota(asked(regions=("eastus",)), no_tell)
    [silent] = quotas.unanswered
    assert quotas.quotas == ()
    assert why is None or silent.why == why
    assert silent.permission == permission
    assert CANARY_TOKEN not in silent.text


def test_quota_of_a_family_and_of_spot(azure) -> None:
    [east, west] = azure.quota(asked(nodes=2), no_tell).quotas
    assert (east.code, east.limit, east.used) == ("standardNDSH100v5Family", 192.0, 96.0)
    assert (east.per_instance, west.limit) == (96.0, 0.0)
    assert azure.quota_command(east, 288.0) == (
        "az quota update --resource-name standardNDSH100v5Family --scope /subscriptions/"
        f"{SUBSCRIPTION}/providers/Microsoft.Compute/locations/eastus"
        " --limit-object value=288 limit-object-type=LimitValue --resource-type dedicated"
    )
    [spot, _] = azure.quota(asked(purchase="spot"), no_tell).quotas
    assert (spot.code, spot.limit) == ("lowPriorityCores", 96.0)


def test_zones_and_what_keeps_a_subscription_out(azure, world) -> None:
    world.restricted["westus3"] = "NotAvailableForSubscription"
    east, west = azure.availability(asked(), no_tell).zones
    assert (east.zones, east.restricted) == (("1", "3"), None)
    assert west.restricted == "restricted: NotAvailableForSubscription"


@pytest.mark.parametrize(
    "code",
    ["LocationNotAvailableForResourceType", "LocationNotAvailable", "NoRegisteredProviderFound"],
)
def test_a_region_that_is_not_open_is_skipped_and_named(azure, world, code) -> None:
    closed = azure_error(400, code)
    world.faults = lambda path: closed if "/locations/westus3/" in path else None
    found = azure.quota(asked(), no_tell)
    [silent] = found.unanswered
    assert (silent.region, silent.why) == ("westus3", "the region is not open to this subscription")
    assert silent.skipped and [one.region for one in found.quotas] == ["eastus"]


def test_reserved_capacity_and_what_of_it_is_free(azure, world) -> None:
    world.reserved["training"][1].append(reserved("other", 2, 0, "Standard_D2s_v5"))
    world.reserved["far"] = ("North Europe", [reserved("h100", 9, 0)])
    failed = reserved("failed", 8, 0)
    failed["properties"]["provisioningState"] = "Failed"
    world.reserved["training"][1].append(failed)
    [held] = azure.reservations(asked(), no_tell).held
    assert (held.region, held.zone, held.id, held.kind) == ("eastus", "1", "h100", "reservation")
    assert (held.instances, held.free) == (4, 3)


@pytest.mark.parametrize(
    ("part", "permission"),
    [
        ("capacityReservationGroups", "Microsoft.Compute/capacityReservationGroups/read"),
        (
            "capacityReservations",
            "Microsoft.Compute/capacityReservationGroups/capacityReservations/read",
        ),
    ],
)
def test_without_a_permission_what_is_held_is_unknown(azure, world, part, permission) -> None:
    world.faults = lambda path: azure_error(403) if f"/{part}" in path else None
    found = azure.reservations(asked(), no_tell)
    [silent] = found.unanswered
    assert found.held == () and silent.permission == permission
    assert CANARY_TOKEN not in silent.text


def test_reservations_prices_are_those_of_an_hour(azure) -> None:
    [row] = azure.offers(asked(), no_tell).commitments
    assert (row.region, row.term_years, row.usd_per_hour) == ("eastus", 1, Decimal(63))


def test_savings_plans_are_answered_in_the_same_rows(azure, world) -> None:
    plans = [{"unitPrice": 51.0, "retailPrice": 51.0, "term": "3 Years"}]
    world.meters = [meter(98.32, savingsPlan=plans)]
    [row] = azure.offers(asked(), no_tell).commitments
    assert (row.region, row.term_years, row.usd_per_hour) == ("eastus", 3, Decimal(51))
    # https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices:
    # "Rates for savings plans are only available with" this version.
    assert world.versions == {"2023-01-01-preview"}


def test_a_login_that_is_none_says_what_makes_one(server: Server) -> None:
    errors = import_module("azure.core.exceptions")
    policies = import_module("azure.core.pipeline.policies")

    class NoLogin(policies.SansIOHTTPPolicy):
        def on_request(self, _request: object) -> None:
            raise errors.ClientAuthenticationError(message=CANARY_TOKEN)

    azure = Azure(
        credential=object(),
        subscription=SUBSCRIPTION,
        patience=HASTY,
        base_url=server.url,
        authentication_policy=NoLogin(),
    )
    [silent] = azure.quota(asked(regions=("eastus",)), no_tell).unanswered
    assert silent.text == "no Azure credentials (`az login` makes them)"


def test_without_a_subscription_one_error_says_so(server) -> None:
    azure = Azure(subscription=None, patience=HASTY, base_url=server.url)
    with pytest.raises(CloudError, match="no Azure subscription"):
        azure.quota(asked(), no_tell)


def test_only_read_requests_are_made(azure, world) -> None:
    azure.offers(asked(), no_tell)
    azure.quota(asked(), no_tell)
    azure.availability(asked(), no_tell)
    azure.reservations(asked(), no_tell)
    posts = {path for path in world.paths if not path.startswith("GET ")}
    assert posts == {f"POST {GRAPH_PATH}"}, "a query, which changes nothing"


def test_wrong_prices_are_refused_by_name(azure, world) -> None:
    world.meters = [
        meter(0.0),
        meter(float("nan")),
        meter(50.0, type="DevTestConsumption"),
        meter(40.0, skuName="ND96isr H100 v5 Low Priority"),
        meter(98.32, "westus3"),
    ]
    prices = azure.offers(asked(), no_tell)
    assert [one.region for one in prices.rows] == ["westus3"]
    assert sorted(one.rule for one in prices.refused) == [
        "azure-low-priority",
        "azure-placeholder",
        "azure-price-type",
        "not-a-number",
    ]
