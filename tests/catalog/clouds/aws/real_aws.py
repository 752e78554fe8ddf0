"""boto3 itself against a local server: `make test-clouds`."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from clouds.aws import CANARY_KEY, CANARY_SECRET, AwsWorld, aws_error, price_row, session
from clouds.server import Answer, Server

from gpuplan.catalog.clouds.asking import Patience
from gpuplan.catalog.clouds.aws.cloud import Aws
from gpuplan.catalog.clouds.interface import Asked, CloudError
from gpuplan.catalog.embedded import embedded_catalogue

NOW = datetime(2026, 11, 23, 18, tzinfo=UTC)
HASTY = Patience(
    first_pause_s=0.0, answer_timeout_s=10.0, connect_timeout_s=10.0, regions_timeout_s=30.0
)


@pytest.fixture(autouse=True)
def _needs(require) -> None:
    require("cloud-clients", "boto3 is not installed: make test-clouds installs it")


@pytest.fixture
def world() -> AwsWorld:
    return AwsWorld()


@pytest.fixture
def server(world: AwsWorld) -> Iterator[Server]:
    with Server(world) as running:
        yield running


@pytest.fixture
def aws(server: Server) -> Aws:
    return Aws(session(), patience=HASTY, endpoint_url=server.url)


def asked(**changes) -> Asked:
    instances = {"p5.48xlarge": embedded_catalogue().instances["aws", "p5.48xlarge"]}
    given = {"instances": instances, "regions": ("us-east-1", "us-west-2"), "now": NOW}
    return Asked(**(given | changes))


def no_tell(_what: str, _done: int | None, _total: int | None) -> None:
    pass


def test_prices_of_every_region_and_spot_of_the_cheapest_zone(aws, world) -> None:
    world.prices += [price_row("p5.48xlarge", "eu-north-1", "58.9")]
    prices = aws.offers(asked(), no_tell)
    found = {(one.region, one.purchase): one.usd_per_hour for one in prices.rows}
    assert found == {
        ("us-east-1", "on-demand"): Decimal("55.04"),
        ("us-west-2", "on-demand"): Decimal("55.04"),
        ("us-east-1", "spot"): Decimal("18.25"),
    }
    assert prices.unmapped == ("p9.48xlarge",)
    assert prices.unanswered == ()


def test_savings_plans_of_every_region(aws, world) -> None:
    prices = aws.offers(asked(), no_tell)
    found = sorted((one.term_years, one.usd_per_hour) for one in prices.commitments)
    assert found == [(1, Decimal("41.5")), (3, Decimal("27.25")), (3, Decimal("31.0"))]
    assert {one.region for one in prices.commitments} == {"us-east-1"}
    assert world.calls.count(("savingsplans", "DescribeSavingsPlansOfferingRates", "us-east-1")) > 2


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            aws_error("AccessDeniedException", 403, is_json=True),
            "not permitted: needs savingsplans:DescribeSavingsPlansOfferingRates",
        ),
        (Answer(b'{"searchResults": [{"rate'), "the answer is cut off or damaged"),
        (aws_error("ThrottlingException", 429, is_json=True), "AWS is too busy"),
    ],
    ids=["denied", "cut off", "busy"],
)
def test_without_savings_plans_the_other_prices_are_answered(aws, world, fault, said) -> None:
    world.faults = lambda service, *_: fault if service == "savingsplans" else None
    prices = aws.offers(asked(), no_tell)
    [silent] = prices.unanswered
    assert (silent.question, silent.region, silent.text) == ("commitments", None, said)
    assert len(prices.rows) == 3 and prices.commitments == ()


def test_a_region_that_is_not_enabled_is_skipped_and_named(aws, world) -> None:
    world.regions["us-west-2"] = "not-opted-in"
    prices = aws.offers(asked(), no_tell)
    [silent] = prices.unanswered
    assert silent.region == "us-west-2" and silent.skipped
    assert ("ec2", "DescribeSpotPriceHistory", "us-west-2") not in world.calls


def test_a_throttle_is_waited_out(aws, world) -> None:
    left = {"GetProducts": 2, "DescribeSpotPriceHistory": 2}

    def faults(_service: str, operation: str, _region: str) -> Answer | None:
        if left.get(operation, 0) <= 0:
            return None
        left[operation] -= 1
        is_json = operation == "GetProducts"
        return aws_error("ThrottlingException", 400 if is_json else 503, is_json=is_json)

    world.faults = faults
    prices = aws.offers(asked(), no_tell)
    assert len(prices.rows) == 3 and prices.unanswered == ()


def test_a_region_that_hangs_leaves_the_others(server, world) -> None:
    def faults(_service: str, operation: str, region: str) -> Answer | None:
        is_slow = (operation, region) == ("DescribeSpotPriceHistory", "us-west-2")
        return Answer(b"", delay_s=60.0) if is_slow else None

    world.faults = faults
    hasty = Patience(first_pause_s=0.0, answer_timeout_s=3.0, connect_timeout_s=10.0)
    prices = Aws(session(), patience=hasty, endpoint_url=server.url).offers(asked(), no_tell)
    [silent] = prices.unanswered
    assert (silent.region, silent.why) == ("us-west-2", "no answer in time")
    assert len(prices.rows) == 3


@pytest.mark.parametrize(
    ("code", "why", "permission"),
    [
        ("AccessDeniedException", "not permitted", "pricing:GetProducts"),
        ("ExpiredTokenException", "the AWS login has expired", None),
        ("UnrecognizedClientException", "AWS does not know these credentials there", None),
    ],
)
def test_a_refusal_names_what_is_missing_and_no_secret(aws, world, code, why, permission) -> None:
    world.faults = lambda service, *_: (
        aws_error(code, 400, is_json=True) if service == "pricing" else None
    )
    with pytest.raises(CloudError) as refused:
        aws.offers(asked(), no_tell)
    assert (refused.value.why, refused.value.permission) == (why, permission)
    assert CANARY_KEY not in str(refused.value) and CANARY_SECRET not in str(refused.value)


def test_an_answer_that_is_cut_off_is_no_price(aws, world) -> None:
    world.faults = lambda service, *_: (
        Answer(b'{"PriceList": ["{\\"product', claimed_bytes=900) if service == "pricing" else None
    )
    with pytest.raises(CloudError) as refused:
        aws.offers(asked(), no_tell)
    assert refused.value.why in ("the answer is cut off or damaged", "no connection")


def test_quota_counts_what_runs_and_asks_for_the_rest(aws, world) -> None:
    quotas = aws.quota(asked(nodes=4), no_tell)
    east, west = quotas.quotas
    assert (east.limit, east.used, east.per_instance, east.unit) == (768.0, 192.0, 192.0, "vCPU")
    assert (west.limit, west.used) == (0.0, 0.0)  # Only among the defaults.
    assert aws.quota_command(east, 960.0) == (
        "aws service-quotas request-service-quota-increase --service-code ec2"
        " --quota-code L-417A185B --desired-value 960 --region us-east-1"
    )


def test_quota_without_a_permission_is_unknown(aws, world) -> None:
    world.faults = lambda service, *_: (
        aws_error("AccessDeniedException", 400, is_json=True)
        if service == "servicequotas"
        else None
    )
    quotas = aws.quota(asked(), no_tell)
    assert quotas.quotas == ()
    assert {one.permission for one in quotas.unanswered} == {"servicequotas:ListServiceQuotas"}


def test_zones_scores_and_blocks(aws, world) -> None:
    world.blocks["us-east-1"] = [
        {
            "CapacityBlockOfferingId": "cb-1",
            "InstanceType": "p5.48xlarge",
            "AvailabilityZone": "us-east-1a",
            "InstanceCount": 4,
            "StartDate": NOW + timedelta(days=1),
            "EndDate": NOW + timedelta(days=8),
            "CapacityBlockDurationHours": 168,
            "UpfrontFee": fee,
            "CurrencyCode": "USD",
        }
        for fee in ("21130.50", "0.0", "NaN")
    ]
    found = aws.availability(asked(nodes=4, purchase="spot", block_hours=168), no_tell)
    zones = {one.region: one.zones for one in found.zones}
    assert zones == {"us-east-1": ("us-east-1a", "us-east-1b"), "us-west-2": ()}
    assert [(one.region, one.score) for one in found.scores] == [("us-east-1", 7.0)]
    [block] = found.blocks
    assert block.upfront_usd == Decimal("21130.5") and block.hours == 168
    assert "purchase-capacity-block --capacity-block-offering-id cb-1" in block.command


def test_reservations_that_are_held(aws, world) -> None:
    world.held["us-east-1"] = [
        {
            "CapacityReservationId": "cr-1",
            "InstanceType": "p5.48xlarge",
            "AvailabilityZone": "us-east-1a",
            "TotalInstanceCount": 4,
            "AvailableInstanceCount": 3,
            "ReservationType": "capacity-block",
            "StartDate": NOW,
            "EndDate": NOW + timedelta(days=7),
        }
    ]
    [held] = aws.reservations(asked(), no_tell).held
    assert (held.kind, held.instances, held.free) == ("capacity block", 4, 3)


def test_only_read_requests_are_made(aws, world) -> None:
    aws.offers(asked(), no_tell)
    aws.quota(asked(), no_tell)
    aws.reservations(asked(), no_tell)
    aws.availability(asked(purchase="spot", block_hours=24), no_tell)
    assert all(operation.startswith(("Describe", "Get", "List")) for _, operation, _ in world.calls)


def test_31_regions_take_seconds(server, world) -> None:
    names = tuple(f"us-test-{number}" for number in range(31))
    world.regions = dict.fromkeys(names, "opt-in-not-required")
    world.prices = [price_row("p5.48xlarge", name, "55.04") for name in names]
    start_s = time.monotonic()
    prices = Aws(session(), patience=HASTY, endpoint_url=server.url).offers(
        asked(regions=names), no_tell
    )
    assert len(prices.rows) == 31
    assert time.monotonic() - start_s < 60.0
