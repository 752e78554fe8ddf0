import json
import multiprocessing
import os
import signal
from datetime import timedelta
from decimal import Decimal

import pytest
from fake_cloud import NOW, FakeCloud, commitment, eviction, row

from gpuplan import api
from gpuplan.catalog.clouds.interface import CloudError, Prices
from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.catalog.errors import PriceError, UsageError
from gpuplan.catalog.price_folder import price_folder, snapshot_files
from gpuplan.catalog.prices.files import newest_snapshot, write_snapshot
from gpuplan.catalog.prices.sku_map import sku_map_path
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.terms.commitments import commitments_of
from gpuplan.catalog.terms.terms_of_offer import terms_of


def aws(*rows) -> FakeCloud:
    return FakeCloud(prices=Prices(rows=rows))


def refresh(cloud, *, days: int = 0, **options):
    clouds = {cloud.name: cloud}
    moment = NOW + timedelta(days=days)
    return api.prices.refresh(providers=[cloud.name], clouds=clouds, now=moment, **options)


def offer_in(region: str):
    wanted = ("aws", region, "p5.48xlarge")
    offers = load_catalogue().offers
    return next(one for one in offers if (one.provider, one.region, one.instance_type) == wanted)


def test_refreshed_prices_go_over_those_of_the_package() -> None:
    refresh(aws(row("60"), row("20", purchase="spot")))
    offer = offer_in("us-east-1")
    assert (offer.on_demand_usd_per_hour, offer.spot_usd_per_hour) == (Decimal(60), Decimal(20))
    assert offer.price_date == NOW.date() and offer.price_basis == "refreshed"
    catalogue = load_catalogue()
    assert catalogue.snapshot_date == NOW.date()
    assert catalogue.price_source.text(NOW + timedelta(hours=3)) == "aws refreshed 3 h ago"
    package = embedded_catalogue()
    assert len(catalogue.offers) == len(package.offers)
    assert offer_in("us-west-2") in package.offers


def committed(region: str = "us-east-1") -> dict[float, Decimal]:
    found = terms_of(offer_in(region), load_catalogue())
    return {float(one.years): one.usd_per_hour for one in found}


def test_refreshed_commitments_are_prices_of_terms() -> None:
    assert committed() == {}
    rows = (commitment("41.5"), commitment("27.25", 3), commitment("60", region="us-west-2"))
    snapshot = refresh(FakeCloud(prices=Prices(rows=(row("60"),), commitments=rows)))
    state = snapshot.of("aws")
    assert state is not None and state.commitments == 2
    assert state.refused == {"committed-above-on-demand": 1}
    assert committed() == {1.0: Decimal("41.5"), 3.0: Decimal("27.25")}
    refresh(aws(row("61")), days=1)
    assert committed() == {1.0: Decimal("41.5"), 3.0: Decimal("27.25")}


def test_a_refreshed_commitment_goes_over_that_of_the_package() -> None:
    place: dict[str, str] = {
        "provider": "gcp",
        "region": "us-central1",
        "instance_type": "a3-highgpu-8g",
    }
    one, three = commitments_of(*place.values())
    answer = Prices(rows=(row("88", **place),), commitments=(commitment("70", 1, **place),))
    refresh(FakeCloud(name="gcp", prices=answer))
    offer = next(
        one
        for one in load_catalogue().offers
        if (one.provider, one.region, one.instance_type) == tuple(place.values())
    )
    found = {int(each.years): each for each in terms_of(offer, load_catalogue())}
    assert found[1].usd_per_hour == 70 != one.usd_per_hour
    assert (found[3].usd_per_hour, found[3].source) == (three.usd_per_hour, three.source)


def test_refreshed_eviction_rates_are_kept_by_place() -> None:
    place = {"provider": "azure", "region": "eastus", "instance_type": "Standard_ND96isr_H100_v5"}
    rates = (
        eviction(0.15, 0.2),
        eviction(0.0, 0.05, region="westus3"),
        eviction(0.2, 1.0, region="westus3"),
    )
    snapshot = refresh(
        FakeCloud(name="azure", prices=Prices(rows=(row("98", **place),), evictions=rates))
    )
    state = snapshot.of("azure")
    assert state is not None and state.evictions == 1
    assert state.refused == {"listed-twice": 1}
    assert load_catalogue().evictions == {tuple(place.values()): rates[0]}
    assert embedded_catalogue().evictions == {}


def test_a_new_region_is_a_new_offer() -> None:
    refresh(aws(row("60", "us-new-1")))
    assert offer_in("us-new-1").on_demand_usd_per_hour == Decimal(60)


def test_a_spot_price_that_was_not_asked_stays_with_its_date() -> None:
    before = offer_in("us-east-1")
    assert before.spot_usd_per_hour is not None
    refresh(aws(row("60")))
    offer = offer_in("us-east-1")
    assert offer.spot_usd_per_hour == before.spot_usd_per_hour
    assert offer.note is not None and f"spot price of {before.price_date}" in offer.note


def test_a_provider_that_fails_keeps_its_rows_and_says_so() -> None:
    refresh(aws(row("60")))
    gcp = row("90", "us-central1", provider="gcp", instance_type="a3-highgpu-8g")
    failed = FakeCloud(error=CloudError("not permitted", permission="pricing:GetProducts"))
    clouds = {"aws": failed, "gcp": FakeCloud(name="gcp", prices=Prices(rows=(gcp,)))}
    snapshot = api.prices.refresh(
        providers=["aws", "gcp"], clouds=clouds, now=NOW + timedelta(days=2)
    )
    state = snapshot.of("aws")
    assert state is not None and state.is_kept and state.prices_at == NOW
    assert state.why == "not permitted: needs pricing:GetProducts"
    assert offer_in("us-east-1").on_demand_usd_per_hour == Decimal(60)
    said = load_catalogue().price_source.text(NOW + timedelta(days=2))
    assert said == "gcp refreshed now; aws kept of 2026-11-23"


def test_when_nobody_answers_nothing_is_written() -> None:
    refresh(aws(row("60")))
    before = snapshot_files()
    with pytest.raises(PriceError, match=r"aws: no answer in time.*That of 2026-11-23 stays"):
        refresh(FakeCloud(error=CloudError("no answer in time")), days=1)
    assert snapshot_files() == before


def test_wrong_rows_do_not_reach_the_snapshot() -> None:
    snapshot = refresh(aws(row("60"), row("0", "us-west-2"), row("5504", "us-east-2")))
    assert [one.region for one in snapshot.offers] == ["us-east-1"]
    state = snapshot.of("aws")
    assert state is not None and state.refused == {"not-positive": 1, "outlier": 1}


def test_prices_that_are_all_held_back_keep_the_old_ones() -> None:
    with pytest.raises(PriceError, match="all 1 prices were held back"):
        refresh(aws(row("5504")))
    assert snapshot_files() == []
    assert len(refresh(aws(row("5504")), accept_changes=True).offers) == 1


def test_a_second_refresh_of_one_region_keeps_the_others() -> None:
    refresh(aws(row("60"), row("61", "us-west-2")))
    cloud = aws(row("62"))
    refresh(cloud, days=1, regions=["us-east-1"])
    assert cloud.asked[0].regions == ("us-east-1",)
    assert offer_in("us-west-2").on_demand_usd_per_hour == Decimal(61)
    assert offer_in("us-west-2").price_date == NOW.date()
    assert offer_in("us-east-1").on_demand_usd_per_hour == Decimal(62)
    assert len(snapshot_files()) == 2


def test_a_provider_without_a_client_is_refused() -> None:
    with pytest.raises(UsageError, match="salad cannot be asked"):
        api.prices.refresh(providers=["salad"])


def test_a_type_that_the_user_describes_is_taken() -> None:
    new = row("70", instance_type="p9.48xlarge")
    with pytest.raises(PriceError):
        refresh(aws(new))
    path = sku_map_path()
    path.parent.mkdir(parents=True)
    path.write_text(
        "offers:\n- provider: aws\n  instance: p9.48xlarge\n  accelerator: H200\n"
        "  accelerators_per_node: 8\n",
        encoding="utf-8",
    )
    cloud = aws(new)
    refresh(cloud)
    assert "p9.48xlarge" in cloud.asked[0].instances
    path.unlink()
    catalogue = load_catalogue()
    [offer] = [one for one in catalogue.offers if one.instance_type == "p9.48xlarge"]
    assert (offer.accelerator, offer.accelerators) == ("H200-141GB-SXM", 8)
    instance = catalogue.instance_of(offer)
    assert instance is not None and instance.basis == "user"
    refresh(aws(row("60")), days=1)
    assert ("aws", "p9.48xlarge") in load_catalogue().instances


def test_a_damaged_snapshot_is_an_error_that_names_the_file() -> None:
    refresh(aws(row("60")))
    [path] = snapshot_files()
    broken = path.with_name("prices-20991231T000000.000000Z.json")
    broken.write_text(path.read_text("utf-8")[:-40], encoding="utf-8")
    with pytest.raises(PriceError, match="20991231.*is damaged"):
        load_catalogue()
    broken.unlink()
    assert offer_in("us-east-1").on_demand_usd_per_hour == Decimal(60)


@pytest.mark.parametrize("usd", ["-1", "0", "1e999"])
def test_a_price_that_nobody_asks_is_damage(usd: str) -> None:
    refresh(aws(row("60")))
    [path] = snapshot_files()
    wrong = path.with_name("prices-20991231T000000.000000Z.json")
    wrong.write_text(path.read_text("utf-8").replace('"60"', f'"{usd}"'), encoding="utf-8")
    with pytest.raises(PriceError, match="is damaged: aws us-east-1 p5.48xlarge costs"):
        load_catalogue()


@pytest.mark.parametrize("changes", [{}, {"offers": {"aws": []}, "made_at": None}])
def test_a_snapshot_of_a_newer_version_says_so_whatever_is_in_it(changes) -> None:
    refresh(aws(row("60")))
    [path] = snapshot_files()
    newer = json.loads(path.read_text("utf-8")) | {"schema_version": 2} | changes
    path.with_name("prices-20991231T000000.000000Z.json").write_text(json.dumps(newer))
    for reading in (load_catalogue, lambda: refresh(aws(row("61"))), api.prices.current):
        with pytest.raises(PriceError, match="version 2; this gpuplan reads up to 1") as raised:
            reading()
        assert "upgrade" in (raised.value.fix or "")


def test_a_snapshot_is_for_its_owner_alone() -> None:
    refresh(aws(row("60")))
    [path] = snapshot_files()
    assert path.stat().st_mode & 0o077 == 0


def _write_for_ever(snapshot) -> None:
    moment = 0
    while True:
        moment += 1
        later = snapshot.made_at + timedelta(seconds=moment)
        write_snapshot(snapshot.model_copy(update={"made_at": later}))


def test_a_kill_at_any_moment_leaves_a_whole_snapshot(require) -> None:
    require("posix", "a process is killed")
    snapshot = refresh(aws(*(row("60", f"us-new-{number}") for number in range(200))))
    context = multiprocessing.get_context("fork")
    for round_number in range(5):
        writer = context.Process(target=_write_for_ever, args=(snapshot,))
        writer.start()
        count = len(snapshot_files())
        while len(snapshot_files()) < count + 1 + round_number:
            pass
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        newest = newest_snapshot()
        assert newest is not None and len(newest.offers) == 200
    assert all(path.parent == price_folder() for path in snapshot_files())


def test_diff_names_what_changed_largest_first() -> None:
    refresh(aws(row("60"), row("61", "us-west-2")))
    refresh(aws(row("75"), row("61", "us-west-2"), row("70", "us-new-1")), days=1)
    found = api.prices.diff()
    assert [(one.region, one.change) for one in found.changes] == [
        ("us-east-1", "up"),
        ("us-new-1", "new"),
    ]
    assert found.changes[0].ratio == 1.25
    since = api.prices.diff(since=NOW.date() - timedelta(days=30))
    assert since.before == "the package's own prices"
    assert {one.region for one in since.changes} >= {"us-east-1", "us-west-2", "us-new-1"}


def test_history_is_the_lowest_price_of_each_snapshot() -> None:
    refresh(aws(row("60"), row("50", "us-west-2")))
    refresh(aws(row("45", "us-west-2"), row("10", "us-west-2", purchase="spot")), days=1)
    points = api.prices.history("H100:8", providers=["aws"]).points
    assert [(one.on_demand_usd_per_hour, one.on_demand_region) for one in points[1:]] == [
        (Decimal(50), "us-west-2"),
        (Decimal(45), "us-west-2"),
    ]
    assert points[0].made_at is None
    assert points[-1].spot_usd_per_hour == Decimal(10) and points[-1].spot_region == "us-west-2"


@pytest.mark.parametrize("said", [Prices(), CloudError("cut off")], ids=["nothing", "an error"])
def test_an_answer_without_a_row_loses_none(said) -> None:
    """A seller whose list was empty for a moment was wiped from a catalogue.

    https://github.com/skypilot-org/skypilot-catalog/pull/179
    """
    refresh(aws(row("60")))
    gcp = row("88", "us-central1", provider="gcp", instance_type="a3-highgpu-8g")
    cloud = FakeCloud(prices=said) if isinstance(said, Prices) else FakeCloud(error=said)
    snapshot = api.prices.refresh(
        providers=["aws", "gcp"],
        clouds={"aws": cloud, "gcp": FakeCloud(name="gcp", prices=Prices(rows=(gcp,)))},
        now=NOW + timedelta(days=1),
    )
    state = snapshot.of("aws")
    assert state is not None and (state.is_kept, state.rows) == (True, 1) and state.why
    assert offer_in("us-east-1").on_demand_usd_per_hour == 60
