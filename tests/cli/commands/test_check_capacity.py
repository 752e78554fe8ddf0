"""`launch --check-capacity`, `estimate --check-capacity` and `estimate --reprice`."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from answers import make_estimate, make_offer, make_plan, make_run
from fake_cloud import FakeCloud, quota, row
from fake_engine import FakeEngine

from gpuplan.catalog.clouds import connect as connecting
from gpuplan.catalog.clouds.interface import (
    Availability,
    CloudError,
    Prices,
    Quotas,
    Reservation,
    Reservations,
    Zones,
)
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.cli.main import run
from gpuplan.launcher.store.estimates import Store
from gpuplan.planner.plan.answer.answer_parts import CatalogueFacts
from gpuplan.planner.plan.plan import Plan

OUTPUTS = ("--outputs", "s3://results/team")


def cloud(limit: float, *regions: str) -> FakeCloud:
    kind = {"instance_type": "p4d.24xlarge"}
    zones = tuple(Zones(region=name, zones=("a",), **kind) for name in regions)
    quotas = tuple(quota(limit, 0, region=name, per_instance=96.0, **kind) for name in regions)
    return FakeCloud(zones=Availability(zones=zones), quotas=Quotas(quotas=quotas))


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeCloud]:
    answering: dict[str, FakeCloud] = {}
    missing = CloudError("no credentials", fix="log in.")
    monkeypatch.setattr(connecting, "connect", lambda name: answering.get(name, missing))
    return answering


def test_a_launch_that_cannot_start_is_refused_before_money_is_spent(
    plan: Plan, engine: FakeEngine, aws, capsys
) -> None:
    aws["aws"] = cloud(0, "us-east-1")
    words = ["launch", plan.id, *OUTPUTS, "--region", "us-east-1", "-y", "--check-capacity"]
    assert run(words) == 3
    said = capsys.readouterr().err
    assert "Your account cannot start 1 × p4d.24xlarge" in said  # noqa: RUF001
    assert "needs 96" in said and "ask aws for 96 vCPU in us-east-1" in said
    assert engine.tasks == []


def test_one_place_that_can_start_it_is_enough(plan: Plan, engine, aws, capsys) -> None:
    east, west = cloud(0, "us-east-1"), cloud(9999, "us-west-2")
    aws["aws"] = FakeCloud(
        zones=Availability(zones=(*east.zones.zones, *west.zones.zones)),
        quotas=Quotas(quotas=(*east.quotas.quotas, *west.quotas.quotas)),
    )
    words = ["launch", plan.id, *OUTPUTS, "--region", "us-east-1,us-west-2", "--dryrun"]
    assert run([*words, "--check-capacity"]) == 0
    assert aws["aws"].asked[0].regions == ("us-east-1", "us-west-2")


def test_what_is_not_known_is_said_and_refuses_nothing(plan: Plan, aws, capsys) -> None:
    words = ["launch", plan.id, *OUTPUTS, "--dryrun", "--check-capacity"]
    assert run(words) == 0
    assert "Note: whether your account can start it is not known" in capsys.readouterr().err


def test_a_launch_that_rents_asks_unless_told_otherwise(
    plan: Plan, engine: FakeEngine, aws, capsys
) -> None:
    aws["aws"] = cloud(0, "us-east-1")
    words = ["launch", plan.id, *OUTPUTS, "--region", "us-east-1", "-y"]
    assert run(words) == 3
    assert "Your account cannot start" in capsys.readouterr().err
    assert engine.tasks == []
    run([*words, "--no-check-capacity"])
    assert engine.tasks != []


def test_a_cloud_that_cannot_be_asked_unasked_is_no_word(
    plan: Plan, engine: FakeEngine, aws, capsys
) -> None:
    run(["launch", plan.id, *OUTPUTS, "-y"])
    assert "whether your account" not in capsys.readouterr().err
    assert engine.tasks != []


def test_too_few_free_machines_of_a_reservation_are_refused(
    plan: Plan, engine: FakeEngine, aws, capsys, tmp_path: Path
) -> None:
    held = cloud(9999, "us-east-1")
    free = Reservation(
        region="us-east-1", zone="a", id="cr-1", instance_type="p4d.24xlarge", kind="reservation",
        instances=4, free=0, starts=None, ends=None,
    )  # fmt: skip
    held.held = Reservations(held=(free,))
    aws["aws"] = held
    book = tmp_path / "book.yaml"
    book.write_text(
        "reserved:\n  - {provider: aws, instance: p4d.24xlarge, region: us-east-1,"
        " usd_per_hour: 9.5, term_years: 1, count: 4, id: cr-1}\n"
    )
    offer = make_offer(
        purchase="reserved", term_years=1.0, price_basis="pricebook", usd_per_hour=9.5
    )
    reserved = make_plan(run=make_run(), runnable=True, offer=offer)
    answer = make_estimate(
        reserved,
        catalog=CatalogueFacts(snapshot_date=load_catalogue().snapshot_date, offers=1),
        generated_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    Store().keep(answer, inputs_hash="b")
    words = ["launch", reserved.id, *OUTPUTS, "--pricebook", str(book), "-y", "--steps", "10"]
    words += ["--command", "train.py"]
    Path("train.py").write_text("")
    assert run(words) == 3
    assert "0 of 4 machines of reservation cr-1 are free, and 1 are needed" in (
        capsys.readouterr().err
    )
    assert engine.tasks == []


def test_nobody_is_asked_unasked(plan: Plan, aws, capsys) -> None:
    aws["aws"] = cloud(0, "us-east-1")
    assert run(["launch", plan.id, *OUTPUTS, "--dryrun"]) == 0
    assert aws["aws"].asked == []


@pytest.mark.parametrize("wanted", ["--reprice", "--check-capacity"])
def test_offline_contradicts_what_asks_the_clouds(wanted: str, capsys) -> None:
    assert run(["estimate", "net.py", "--offline", wanted]) == 2
    assert "contradict each other" in capsys.readouterr().err


@pytest.mark.slow
def test_an_estimate_takes_todays_prices_and_says_so(aws, capsys) -> None:
    aws["aws"] = FakeCloud(prices=Prices(rows=(row("60"),)))
    words = ["estimate", "examples/gpt2.py", "--tokens", "1B", "--cluster", "1xp5.48xlarge"]
    words += ["--provider", "aws", "--region", "us-east-1", "--reprice", "--check-capacity"]
    assert run(words) == 0
    assert "aws refreshed now" in capsys.readouterr().out
    aws["aws"] = cloud(0, "us-east-1")
    again = [word for word in words if word != "--reprice"]
    assert run([*again, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["catalog"]["source"]["fresh"] == ["aws"]
    assert {one["offer"]["usd_per_hour"] for one in answer["plans"]} == {60.0}
    assert {one["startable"] for one in answer["plans"]} == {"unknown"}  # Of p4d alone it says.
