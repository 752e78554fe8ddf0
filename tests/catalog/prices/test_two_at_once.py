"""Two refreshes at the same time: neither loses what the other has read."""

import multiprocessing
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Barrier

import pytest
from fake_cloud import NOW, FakeCloud, row

from gpuplan import api
from gpuplan.catalog.clouds.interface import Asked, Prices, Tell
from gpuplan.catalog.price_folder import price_folder, snapshot_files
from gpuplan.catalog.prices.files import newest_snapshot

REGIONS = ("us-east-1", "us-east-2", "us-west-2", "eu-north-1", "ap-south-1", "sa-east-1")


class Slow(FakeCloud):
    """A cloud that answers when a whole other refresh has ended."""

    def offers(self, asked: Asked, tell: Tell) -> Prices:
        gcp = FakeCloud(name="gcp", prices=Prices(rows=(GCP,)))
        api.prices.refresh(providers=["gcp"], clouds={"gcp": gcp}, now=NOW + timedelta(seconds=5))
        return super().offers(asked, tell)


GCP = row("88", "us-central1", provider="gcp", instance_type="a3-highgpu-8g")


def test_a_refresh_that_ends_meanwhile_is_in_the_next_snapshot() -> None:
    made = api.prices.refresh(
        providers=["aws"], clouds={"aws": Slow(prices=Prices(rows=(row("60"),)))}, now=NOW
    )
    newest = newest_snapshot()
    assert newest == made
    assert {(one.provider, one.is_kept, one.rows) for one in made.providers} == {
        ("aws", False, 1),
        ("gcp", False, 1),
    }
    assert len(snapshot_files()) == 2


def refresh(region: str, gate: Barrier) -> None:
    gate.wait(60)
    cloud = FakeCloud(prices=Prices(rows=(row("60", region),)))
    api.prices.refresh(providers=["aws"], regions=[region], clouds={"aws": cloud})


def test_processes_that_write_at_the_same_moment_lose_nothing(require) -> None:
    require("posix", "processes are forked")
    context = multiprocessing.get_context("fork")
    gate = context.Barrier(len(REGIONS))
    processes = [context.Process(target=refresh, args=(one, gate)) for one in REGIONS]
    for one in processes:
        one.start()
    for one in processes:
        one.join(60)
        assert one.exitcode == 0
    newest = newest_snapshot()
    assert newest is not None and {offer.region for offer in newest.offers} == {*REGIONS}
    assert len(snapshot_files()) == len(REGIONS)


def test_a_clock_that_was_ahead_does_not_hide_what_comes_later() -> None:
    """The newest snapshot is that of the last refresh, whatever the clock said before."""

    def made(usd: str, now: datetime):
        cloud = FakeCloud(prices=Prices(rows=(row(usd),)))
        return api.prices.refresh(providers=["aws"], clouds={"aws": cloud}, now=now)

    made("60", datetime(2031, 1, 1, tzinfo=UTC))
    made("61", NOW)
    newest = newest_snapshot()
    assert newest is not None and newest.offers[0].on_demand_usd_per_hour == 61
    state = newest.of("aws")
    assert state is not None and state.prices_at == NOW
    assert len(snapshot_files()) == 2


def test_nobody_is_asked_where_nothing_can_be_kept() -> None:
    price_folder().parent.mkdir(parents=True, exist_ok=True)
    price_folder().write_text("no folder")
    cloud = FakeCloud(prices=Prices(rows=(row("60"),)))
    with pytest.raises(api.GpuplanError, match="cannot be kept in .*prices") as raised:
        api.prices.refresh(providers=["aws"], clouds={"aws": cloud}, now=NOW)
    assert cloud.asked == [] and "GPUPLAN_HOME" in str(raised.value)
