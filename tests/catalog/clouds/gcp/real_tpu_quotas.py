"""Quotas of Cloud TPU through Google's client libraries, against a local server."""

import csv

import pytest
from clouds.gcp import PROJECT, asked, gcp_error, no_tell, node

from gpuplan.catalog.clouds.gcp.tpu_quotas import quotas_of, size_of
from gpuplan.catalog.clouds.gcp.tpus import accelerator_types
from gpuplan.catalog.embedded import CURATED_DIR, embedded_catalogue
from gpuplan.catalog.listing.capacity import CloudAnswer, capacity_lines

V6E = "ct6e-standard-8t"
V6E_ZONE = "TPUV6EPerProjectPerZoneForTPUAPI"
V6E_REGION = "TPUV6EPerProjectPerRegionForTPUAPI"


@pytest.fixture
def v6e(world):
    world.tpus = {"us-central1-a": ["v6e-8"], "us-central1-b": ["v6e-8"], "us-central1-c": []}
    world.zones = {zone: [V6E] for zone in world.tpus}
    world.tpu_limits = {
        V6E_ZONE: {"us-central1-a": 16, "us-central1-b": 32, "us-central1-c": 512},
        V6E_REGION: {"us-central1": 64},
    }
    return world


def test_a_tpu_is_counted_by_zone_and_by_region(gcp, v6e) -> None:
    v6e.nodes = {
        "us-central1-b": [node("v6e-8"), node("v6e-16"), node("v5litepod-4")],
        "us-central1-c": [node("v6e-4")],
    }
    by_zone, by_region = gcp.quota(asked(V6E), no_tell).quotas
    # Zone b has 32 - 24 left, a all of 16; c has more and does not offer it.
    assert (by_zone.zone, by_zone.limit, by_zone.used) == ("us-central1-a", 16.0, 0.0)
    assert (by_region.zone, by_region.limit, by_region.used) == (None, 64.0, 28.0)
    assert (by_zone.per_instance, by_zone.unit) == (8.0, "TPU chip")
    assert gcp.quota_command(by_zone, 24.0) == (
        "gcloud beta quotas preferences create --service=tpu.googleapis.com"
        f" --project={PROJECT} --quota-id={V6E_ZONE}"
        " --preferred-value=24 --dimensions=zone=us-central1-a"
    )


def test_what_holds_no_chips_of_a_quota_is_not_counted(gcp, v6e) -> None:
    v6e.nodes = {
        "us-central1-a": [
            node("v6e-8", preemptible=True),
            node("v6e-8", spot=True),
            node("v6e-8", reserved=True),
            node("v6e-8", state="TERMINATED"),
            node("v6e-8", state="CREATING"),
        ],
    }
    _zone, region = gcp.quota(asked(V6E), no_tell).quotas
    assert region.used == 8.0


def lines(gcp, name: str = V6E, **changes):
    wanted = asked(name, **changes)
    said = CloudAnswer(
        provider="gcp",
        availability=gcp.availability(wanted, no_tell),
        quotas=gcp.quota(wanted, no_tell),
    )
    return capacity_lines(
        embedded_catalogue(),
        said,
        wanted.instances,
        wanted.regions,
        nodes=wanted.nodes,
        purchase=wanted.purchase,
        now=wanted.now,
    )


def test_one_starts_where_both_have_room(gcp, v6e) -> None:
    [line] = lines(gcp)
    assert line.startable == "yes"
    v6e.tpu_limits[V6E_REGION]["us-central1"] = 0
    [line] = lines(gcp)
    assert line.startable == "no"


def test_a_limit_that_is_not_set_is_unknown(gcp, v6e) -> None:
    v6e.tpu_limits[V6E_REGION] = {}
    [line] = lines(gcp)
    assert line.startable == "unknown"
    assert f"quota: no limit of {V6E_REGION} is stated" in line.unknown


@pytest.mark.parametrize(
    ("last", "permission"),
    [
        ("locations", "tpu.locations.list"),
        (V6E_ZONE, "cloudquotas.quotas.get"),
        ("acceleratorTypes", "tpu.acceleratortypes.list"),
    ],
)
def test_without_permission_the_quota_is_unknown(gcp, v6e, last, permission) -> None:
    v6e.faults = lambda path: gcp_error(403) if path.endswith(f"/{last}") else None
    [line] = lines(gcp)
    assert line.startable == "unknown"
    assert any(text.startswith("quota") and permission in text for text in line.unknown)


def test_without_the_nodes_the_limit_alone_is_known(gcp, v6e) -> None:
    v6e.faults = lambda path: gcp_error(403) if path.endswith("/nodes") else None
    [line] = lines(gcp)
    assert [one.used for one in line.quotas] == [None, None]
    assert line.startable == "unknown"
    assert "use: not permitted: needs tpu.nodes.list" in line.unknown
    [line] = lines(gcp, nodes=100)
    assert line.startable == "no"  # 800 chips are above any of the limits.


def test_a_zone_that_does_not_answer_is_not_one_without_tpus(gcp, v6e) -> None:
    v6e.nodes = {"us-central1-b": [node("v6e-64")]}
    v6e.faults = lambda path: gcp_error(403) if "/us-central1-b/accel" in path else None
    [line] = lines(gcp)
    assert [one.used for one in line.quotas] == [0.0, None]
    assert line.startable == "unknown"


def test_a_zone_with_room_goes_before_one_of_which_that_is_not_known(gcp, v6e) -> None:
    v6e.faults = lambda path: gcp_error(403) if path.endswith("us-central1-b/nodes") else None
    by_zone = gcp.quota(asked(V6E), no_tell).quotas[0]
    assert (by_zone.zone, by_zone.used) == ("us-central1-a", 0.0)
    by_zone = gcp.quota(asked(V6E, nodes=4), no_tell).quotas[0]
    assert (by_zone.zone, by_zone.used) == ("us-central1-b", None), "a has too few for certain"


def test_a_small_v5e_takes_the_serving_quota_and_a_slice_that_of_training(gcp, world) -> None:
    serving = "TPUV5sLitepodServingPerProjectPerZoneForTPUAPI"
    training = "TPUV5sLitepodPerProjectPerZoneForTPUAPI"
    training_region = "TPUV5sLitepodPerProjectPerRegionForTPUAPI"
    world.tpu_limits = {
        serving: {"us-central1-a": 4},
        training: {"us-central1-a": 512},
        training_region: {"us-central1": 512},
    }
    world.nodes = {"us-central1-a": [node("v5litepod-4"), node("v5litepod-64")]}
    [one] = gcp.quota(asked("ct5lp-hightpu-4t"), no_tell).quotas
    assert (one.code, one.limit, one.used) == (serving, 4.0, 4.0)
    several = gcp.quota(asked("ct5lp-hightpu-4t", nodes=8), no_tell).quotas
    assert [(quota.code, quota.used) for quota in several] == [
        (training, 64.0),
        (training_region, 64.0),
    ]


def test_gpus_ask_cloud_tpu_nothing(gcp, world) -> None:
    gcp.quota(asked(), no_tell)
    assert not any("/v2/" in path for path in world.paths)


def test_a_v5p_is_counted_by_cores() -> None:
    assert size_of(accelerator_types()["ct5p-hightpu-4t"]) == 8
    assert {one.unit for one in quotas_of("v5p-8", "on-demand")} == {"TPU core"}


def test_each_row_of_the_table_has_a_source() -> None:
    with (CURATED_DIR / "gcp_tpu_quotas.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert all(row["source"] and row["hosts"] in ("one", "several", "any") for row in rows)
    assert all(("PerZone" in row["quota_id"]) == (row["place"] == "zone") for row in rows)
    assert all(("Preemptible" in row["quota_id"]) == (row["purchase"] == "spot") for row in rows)
