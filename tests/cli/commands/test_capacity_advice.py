"""What Google advises, as `gpuplan capacity` tells it."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from fake_cloud import FakeCloud

from gpuplan.catalog.clouds import connect as connecting
from gpuplan.catalog.clouds.interface import Availability, CalendarWindow, SpotHistory, Zones
from gpuplan.cli.main import run

PLACE = {"region": "us-central1", "instance_type": "a3-highgpu-8g"}
ASKED = ("capacity", "--accelerator", "H100:8", "--provider", "gcp", "--region", "us-central1")
DAY = datetime(2026, 12, 1, 8, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _google(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = {**PLACE, "instances": 4, "source": "a test"}
    history = SpotHistory(
        **PLACE,
        begins=datetime(2026, 11, 10, tzinfo=UTC),
        preempted_last=0.31,
        preempted_low=0.25,
        preempted_high=0.4,
        usd_low=Decimal("22.5"),
        usd_high=Decimal("27.5"),
        source="a test",
    )
    said = Availability(
        zones=(Zones(**PLACE, zones=("us-central1-a",)),),
        histories=(history,),
        windows=(
            CalendarWindow(
                zone="us-central1-a",
                status="recommended",
                starts=DAY,
                ends=DAY.replace(day=8),
                command="gcloud reserve it",
                **kind,
            ),
            CalendarWindow(zone="us-central1-b", status="no capacity", **kind),
        ),
    )
    monkeypatch.setattr(connecting, "connect", lambda _: FakeCloud(name="gcp", zones=said))


def test_windows_and_history_are_told_below_the_table(capsys) -> None:
    assert run([*ASKED, "--nodes", "4"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "in us-central1-a from 2026-12-01 08:00 to 2026-12-08 08:00 UTC, paid whole" in said
    assert "gcloud reserve it" in said
    assert "Calendar mode elsewhere: us-central1-b (no capacity)." in said
    assert "25% to 40% were taken away (why they stop, not how often); $22.5" in said


def test_json_has_them_by_place(capsys) -> None:
    assert run([*ASKED, "--format", "json"]) == 0
    [line] = [
        one
        for one in json.loads(capsys.readouterr().out)["lines"]
        if one["instance_type"] == PLACE["instance_type"]
    ]
    assert line["spot_history"]["preempted_last"] == 0.31
    assert [one["status"] for one in line["windows"]] == ["recommended", "no capacity"]
