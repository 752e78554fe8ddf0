"""Google's own client libraries against a local server: `make test-clouds`."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from clouds.gcp import (
    CANARY_TOKEN,
    PROJECT,
    asked,
    calendar_advice,
    capacity_history,
    credentials,
    disabled,
    gcp_error,
    no_tell,
    sku,
)
from clouds.server import Answer

from gpuplan.catalog.clouds.asking import Patience
from gpuplan.catalog.clouds.gcp.cloud import Gcp
from gpuplan.catalog.clouds.gcp.tpus import accelerator_types
from gpuplan.catalog.clouds.interface import CloudError
from gpuplan.catalog.embedded import embedded_catalogue


def test_the_sum_of_the_skus_is_the_list_price(gcp) -> None:
    [row] = gcp.offers(asked(), no_tell).rows
    assert (row.region, row.purchase) == ("us-central1", "on-demand")
    # https://cloud.google.com/compute/gpus-pricing: $88.49 for a3-highgpu-8g in Iowa.
    assert row.usd_per_hour.quantize(Decimal("0.01")) == Decimal("88.49")


def test_without_machine_types_the_catalogue_says_where_it_is_offered(gcp, world) -> None:
    world.faults = lambda path: gcp_error(403) if path.endswith("machineTypes") else None
    prices = gcp.offers(asked(regions=("us-central1", "us-east4")), no_tell)
    assert {row.region for row in prices.rows} == {"us-central1", "us-east4"}
    [silent] = prices.unanswered
    assert silent.permission == "compute.machineTypes.list"


@pytest.mark.parametrize("status", [429, 503])
def test_a_throttle_is_waited_out(gcp, world, status: int) -> None:
    left = [2]

    def faults(path: str) -> Answer | None:
        left[0] -= 1
        return gcp_error(status) if left[0] >= 0 else None

    world.faults = faults
    assert len(gcp.offers(asked(), no_tell).rows) == 1


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (gcp_error(401), "no Google credentials"),  # Anonymous ones cannot be made anew.
        (gcp_error(403), "not permitted"),
        (Answer(b'{"skus": [{"descr', claimed_bytes=900), None),
        (Answer(b'{"skus": [{"descr'), "the answer is cut off or damaged"),
        (Answer(b"", delay_s=60.0), "no answer in time"),
    ],
)
def test_a_failure_has_a_reason_and_no_secret(server, world, fault, why) -> None:
    world.faults = lambda _path: fault
    hasty = Patience(tries=2, first_pause_s=0.0, answer_timeout_s=0.5, connect_timeout_s=2.0)
    gcp = Gcp(credentials(), project=PROJECT, patience=hasty, api_endpoint=server.url)
    with pytest.raises(CloudError) as refused:
        gcp.offers(asked(), no_tell)
    assert why is None or refused.value.why == why
    assert CANARY_TOKEN not in str(refused.value.reason)


def test_quota_of_a_family_counts_what_runs(gcp) -> None:
    [quota] = gcp.quota(asked(nodes=2), no_tell).quotas
    assert (quota.limit, quota.used, quota.per_instance, quota.unit) == (16.0, 8.0, 8.0, "GPU")
    assert gcp.quota_command(quota, 24.0) == (
        "gcloud beta quotas preferences create --service=compute.googleapis.com"
        f" --project={PROJECT} --quota-id=GPUS-PER-GPU-FAMILY-per-project-region"
        " --preferred-value=24 --dimensions=region=us-central1,gpu_family=NVIDIA_H100"
    )


def test_a_region_without_a_row_of_its_own_has_the_limit_of_all(gcp) -> None:
    [quota] = gcp.quota(asked(regions=("us-east4",)), no_tell).quotas
    assert quota.limit == 0.0


def test_quota_of_an_older_accelerator_counts_in_all_regions_too(gcp) -> None:
    quotas = gcp.quota(asked("a2-highgpu-8g"), no_tell).quotas
    assert [(one.region, one.limit, one.used) for one in quotas] == [
        ("us-central1", 16.0, 8.0),
        ("global", 8.0, 8.0),
    ]


def test_zones_are_those_of_the_machine_types(gcp) -> None:
    found = gcp.availability(asked(regions=("us-central1", "us-east4")), no_tell)
    zones = {one.region: one.zones for one in found.zones}
    assert zones == {"us-central1": ("us-central1-a", "us-central1-c"), "us-east4": ()}


TPU = "ct5lp-hightpu-4t"


def test_tpus_are_offered_where_cloud_tpu_lists_them(gcp, world) -> None:
    world.zones = {"us-central1-b": [TPU], "us-central1-z": [TPU]}
    [found] = gcp.availability(asked(TPU), no_tell).zones
    # Cloud TPU says no for b, and nothing of z, which is none of its zones.
    assert found.zones == ("us-central1-a", "us-central1-z")
    assert not any("europe-west4" in path for path in world.paths)


def test_who_rents_no_tpu_asks_cloud_tpu_nothing(gcp, world) -> None:
    gcp.availability(asked(), no_tell)
    assert not any("/v2/" in path for path in world.paths)


@pytest.mark.parametrize(
    ("last", "permission"),
    [("locations", "tpu.locations.list"), ("acceleratorTypes", "tpu.acceleratortypes.list")],
)
def test_without_cloud_tpu_the_machine_types_stay(gcp, world, last, permission) -> None:
    world.zones = {"us-central1-b": [TPU]}
    world.faults = lambda path: gcp_error(403) if path.endswith(f"/{last}") else None
    found = gcp.availability(asked(TPU), no_tell)
    assert found.zones[0].zones == ("us-central1-b",)
    assert {one.permission for one in found.unanswered} == {permission}


def test_the_table_of_tpu_types_is_of_the_catalogue() -> None:
    known = embedded_catalogue().instances
    assert all(known["gcp", name].accelerator.startswith("TPU") for name in accelerator_types())


def test_spot_has_googles_own_score(gcp, world) -> None:
    found = gcp.availability(asked(purchase="spot"), no_tell)
    assert [(one.region, one.score, one.of) for one in found.scores] == [("us-central1", 0.7, 1.0)]
    assert gcp.availability(asked(), no_tell).scores == ()
    world.faults = lambda path: gcp_error(403) if path.endswith("/advice/capacity") else None
    refused = gcp.availability(asked(purchase="spot"), no_tell)
    assert refused.scores == () and refused.zones != ()
    assert refused.unanswered[0].permission == "the method compute.advice.capacity"


def test_only_read_requests_are_made(gcp, world) -> None:
    gcp.offers(asked(), no_tell)
    gcp.quota(asked(), no_tell)
    gcp.availability(asked(), no_tell)
    gcp.reservations(asked(), no_tell)
    assert {path.partition(" ")[0] for path in world.paths} == {"GET"}
    world.paths.clear()
    gcp.availability(asked(purchase="spot"), no_tell)
    posted = [path for path in world.paths if path.startswith("POST")]
    advice = [path.rpartition("/advice/")[2] for path in posted]
    assert sorted(advice) == ["capacity", "capacityHistory"]  # Advice alone.


def test_spot_history_says_why_machines_stopped_and_what_they_cost(gcp, world) -> None:
    [found] = gcp.availability(asked(purchase="spot"), no_tell).histories
    assert (found.region, found.preempted_last) == ("us-central1", 0.31)
    assert (found.preempted_low, found.preempted_high) == (0.25, 0.4)
    assert (found.usd_low, found.usd_high) == (Decimal("22.5"), Decimal("27.5"))
    sent = dict(world.bodies)["capacityHistory"]
    assert sent["instanceProperties"]["scheduling"]["provisioningModel"] == "SPOT"
    assert sent["types"] == ["PREEMPTION", "PRICE"]
    world.history = capacity_history((float("nan"), 1.7, -0.1), ())
    assert gcp.availability(asked(purchase="spot"), no_tell).histories == ()
    world.history = {}
    assert gcp.availability(asked(purchase="spot"), no_tell).histories == ()


def test_calendar_mode_says_when_and_where(gcp, world) -> None:
    found = gcp.availability(asked(nodes=4, block_hours=168), no_tell).windows
    assert {one.zone: one.status for one in found} == {
        "us-central1-a": "recommended",
        "us-central1-b": "no capacity",
        "us-central1-c": "possible",
        "us-central1-f": "not supported",
    }
    [advised] = [one for one in found if one.starts is not None]
    assert advised.starts == datetime(2026, 12, 1, 8, tzinfo=UTC)
    assert advised.command == (
        "gcloud compute future-reservations create gpuplan-a3-highgpu-8g-20261201"
        f" --project={PROJECT} --zone=us-central1-a --machine-type=a3-highgpu-8g --total-count=4"
        " --start-time=2026-12-01T08:00:00Z --end-time=2026-12-08T08:00:00Z"
        " --reservation-mode=CALENDAR --deployment-type=DENSE"
        " --auto-delete-auto-created-reservations --require-specific-reservation"
        " --planning-status=SUBMITTED"
    )
    spec = dict(world.bodies)["calendarMode"]["futureResourcesSpecs"]["wanted"]
    assert spec["targetResources"]["specificSkuResources"]["machineType"] == "a3-highgpu-8g"
    assert spec["timeRangeSpec"]["minDuration"] == "604800s"
    assert gcp.availability(asked(), no_tell).windows == ()


B200 = "a4-highgpu-8g"
BOOKED_B200 = "Reserved A4 Nvidia B200 (1 gpu slice) in Americas in Calendar Mode"


def test_a_window_costs_its_skus_from_start_to_end(gcp, world) -> None:
    world.zones = {"us-central1-a": [B200]}
    world.skus = [sku(BOOKED_B200, units=11, nanos=277_000_000)]
    found = gcp.availability(asked(B200, nodes=2, block_hours=168), no_tell).windows
    assert [one.usd for one in found if one.starts] == [Decimal("30312.58")]
    assert {one.usd for one in found if not one.starts} == {None}


@pytest.mark.parametrize("skus", [[], [sku(BOOKED_B200)]], ids=["none", "at $0"])
def test_a_window_without_a_price_has_none(gcp, world, skus) -> None:
    world.zones, world.skus = {"us-central1-a": [B200]}, skus
    found = gcp.availability(asked(B200, block_hours=168), no_tell)
    assert {one.usd for one in found.windows} == {None} and found.unanswered == ()
    world.faults = lambda path: gcp_error(403) if path.endswith("/skus") else None
    found = gcp.availability(asked(B200, block_hours=168), no_tell)
    assert [one.question for one in found.unanswered] == ["prices"] and found.windows


def test_a_service_that_is_not_enabled_is_named(gcp, world) -> None:
    world.faults = lambda path: disabled("compute.googleapis.com") if "zones" not in path else None
    [silent] = gcp.availability(asked(), no_tell).unanswered
    assert silent.text == "compute.googleapis.com is not enabled for the project"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (gcp_error(403), "not permitted: needs the method compute.advice.calendarMode"),
        (gcp_error(400), "Google answers BadRequest"),
        (gcp_error(503), "Google is too busy"),
        (Answer(b'{"recommendations": [{'), "the answer is cut off or damaged"),
    ],
    ids=["denied", "not for this type", "busy", "cut off"],
)
def test_without_advice_the_zones_are_answered(gcp, world, fault, said) -> None:
    world.faults = lambda path: fault if path.endswith("/calendarMode") else None
    found = gcp.availability(asked(block_hours=24), no_tell)
    [silent] = found.unanswered
    assert (silent.question, silent.text) == ("windows", said)
    assert found.zones and found.windows == ()


def test_times_that_are_none_are_no_window(gcp, world) -> None:
    world.calendar = calendar_advice(startTime="soon")
    found = gcp.availability(asked(block_hours=24), no_tell)
    assert found.windows == () and found.unanswered[0].why == "the answer is cut off or damaged"
