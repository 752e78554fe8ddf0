"""`gpuplan prices` and `gpuplan capacity`, with clouds that answer from memory."""

import json
import socket
from datetime import timedelta
from decimal import Decimal

import pytest
from fake_cloud import NOW, FakeCloud, quota, row

from gpuplan.catalog.clouds import connect as connecting
from gpuplan.catalog.clouds.interface import (
    Availability,
    Block,
    CloudError,
    Prices,
    Quotas,
    Refused,
    Unanswered,
    Zones,
)
from gpuplan.cli.main import run


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def clouds(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeCloud]:
    """Return the clouds that answer; others have no credentials."""
    answering: dict[str, FakeCloud] = {}
    missing = CloudError("no credentials", fix="log in.")
    monkeypatch.setattr(connecting, "connect", lambda name: answering.get(name, missing))
    return answering


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def aws(**changes) -> FakeCloud:
    zones = tuple(
        Zones(region=region, instance_type="p5.48xlarge", zones=names)
        for region, names in (("us-east-1", ("us-east-1a",)), ("us-west-2", ()))
    )
    given = {
        "prices": Prices(rows=(row("60"), row("18", purchase="spot"))),
        "zones": Availability(zones=zones),
        "quotas": Quotas(quotas=(quota(768, 192), quota(0, 0, region="us-west-2"))),
    }
    return FakeCloud(**(given | changes))


def test_without_a_snapshot_it_says_so(capsys) -> None:
    assert run(["prices"]) == 0
    assert "No prices of your own" in capsys.readouterr().out
    assert run(["prices", "show", "--format", "json"]) == 0
    assert capsys.readouterr().out == "null\n"
    assert run(["prices", "diff"]) == 5
    assert "gpuplan prices refresh" in capsys.readouterr().err


def test_refresh_says_what_came_of_each_provider(clouds, capsys) -> None:
    clouds["aws"] = aws(
        prices=Prices(
            rows=(row("60"), row("6000", "us-west-2")),
            refused=(Refused(rule="aws-tenancy", provider="aws", region=None, what="x", why="y"),),
            unmapped=("p9.48xlarge",),
            unanswered=(
                Unanswered(question="spot prices", region="me-south-1", why="no answer in time"),
            ),
        )
    )
    assert run(["prices", "refresh"]) == 0
    text = capsys.readouterr().out
    assert "aws       20" in text and "fresh" in text
    assert "the package's prices stay: no credentials (log in)" in text
    assert "1 outlier" in text and "1 aws-tenancy" in text
    assert "Held back: aws p5.48xlarge in us-west-2" in text and "--accept-changes" in text
    assert "p9.48xlarge" in text
    assert "me-south-1: no answer in time" in text
    assert run(["offers", "--instance", "p5.48xlarge", "--region", "us-east-1"]) == 0
    assert "60.00" in capsys.readouterr().out


def test_refresh_of_nobody_ends_with_5(clouds, capsys) -> None:
    assert run(["prices", "refresh", "--provider", "aws"]) == 5
    assert "aws: no credentials (log in)" in capsys.readouterr().err


def test_json_of_every_subcommand_is_json(clouds, capsys) -> None:
    clouds["aws"] = aws()
    assert run(["prices", "refresh", "--provider", "aws", "--format", "json"]) == 0
    snapshot = json.loads(capsys.readouterr().out)
    assert snapshot["offers"] == 1
    assert [one["provider"] for one in snapshot["providers"]] == ["aws"]
    clouds["aws"] = aws(prices=Prices(rows=(row("66"),)))
    assert run(["prices", "refresh", "--provider", "aws", "-q"]) == 0
    capsys.readouterr()
    assert run(["prices", "diff", "--format", "json"]) == 0
    [change] = json.loads(capsys.readouterr().out)["changes"]
    assert (change["before_usd_per_hour"], change["after_usd_per_hour"]) == (60.0, 66.0)
    assert run(["prices", "diff"]) == 0
    assert "+10.0%" in capsys.readouterr().out
    assert run(["prices", "history", "H100:8", "--provider", "aws", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("made_at,day,provider") and len(lines) == 4


def test_a_region_is_asked_of_those_who_have_it(clouds, capsys) -> None:
    clouds["aws"], clouds["gcp"] = aws(), FakeCloud(name="gcp")
    assert run(["prices", "refresh", "--region", "us-east-1", "-q"]) == 0
    assert clouds["aws"].asked[0].regions == ("us-east-1",)
    assert clouds["gcp"].asked == []
    asked = ["capacity", "--accelerator", "H100:8", "--region", "us-east-1,us-central1"]
    assert run(asked) == 0
    assert clouds["aws"].asked[-1].regions == ("us-east-1",)
    assert clouds["gcp"].asked[-1].regions == ("us-central1",)


def test_a_provider_that_was_named_and_sells_elsewhere_is_answered(clouds, capsys) -> None:
    clouds["aws"], clouds["lambda"] = aws(), FakeCloud(name="lambda")
    where = ["--provider", "aws,lambda", "--region", "us-east-1"]
    assert run(["prices", "refresh", *where]) == 0
    assert "it has no us-east-1, only (global)" in capsys.readouterr().out
    assert clouds["lambda"].asked == []
    assert run(["capacity", "--accelerator", "H100:8", *where]) == 0
    assert "lambda unknown: it has no us-east-1, only (global)." in capsys.readouterr().out
    assert run(["capacity", "--accelerator", "GB300", "--provider", "aws", "--offline"]) == 3
    assert "nobody who was asked sells it" in capsys.readouterr().out


def test_capacity_of_a_kept_plan_is_of_its_machines(plan, clouds, capsys) -> None:
    clouds["aws"] = FakeCloud()
    assert run(["capacity", plan.id, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {one["instance_type"] for one in answer["lines"]} == {plan.offer.instance_type}
    assert answer["nodes"] == plan.nodes


def test_capacity_says_what_can_be_started_where(clouds, capsys) -> None:
    clouds["aws"] = aws()
    asked = ["capacity", "--accelerator", "H100:8", "--provider", "aws", "--region", "us-east-1"]
    assert run([*asked, "--nodes", "3"]) == 0
    text = capsys.readouterr().out
    assert "yes" in text and "192 of 768 vCPU, needs 576" in text and "1 zone" in text
    assert run([*asked, "--nodes", "4"]) == 3
    text = capsys.readouterr().out
    assert "ask aws for 960 vCPU in us-east-1" in text


def test_capacity_shows_blocks_with_the_command_that_buys_them(clouds, capsys) -> None:
    block = Block(
        region="us-east-1",
        zone="us-east-1a",
        id="cb-1",
        instance_type="p5.48xlarge",
        instances=2,
        hours=168,
        upfront_usd=Decimal("10565.25"),
        starts=NOW + timedelta(days=1),
        ends=NOW + timedelta(days=8),
        command="aws ec2 purchase-capacity-block --capacity-block-offering-id cb-1",
    )
    cloud = clouds["aws"] = aws()
    cloud.zones = cloud.zones.model_copy(update={"blocks": (block,)})
    asked = ["capacity", "--accelerator", "H100:8", "--provider", "aws", "--block", "7d"]
    assert run(asked) == 0
    text = capsys.readouterr().out
    assert "$10,565.25 paid today" in text and "--capacity-block-offering-id cb-1" in text
    assert cloud.asked[0].block_hours == 168


def test_without_credentials_capacity_is_unknown(clouds, capsys) -> None:
    assert run(["capacity", "--accelerator", "H100:8"]) == 0
    text = capsys.readouterr().out
    assert "on-demand: unknown in " in text and " 0 places" not in text
    assert "aws unknown: no credentials (log in)." in text


def test_offline_opens_no_socket(no_sockets, capsys) -> None:
    assert run(["capacity", "--accelerator", "H100:8", "--offline"]) == 0
    assert "not asked (--offline)" in capsys.readouterr().out
    assert run(["prices", "refresh", "--offline"]) == 2
    assert run(["prices"]) == 0
    assert run(["prices", "history", "H100:8"]) == 0


def test_a_plan_and_an_accelerator_contradict_each_other(capsys) -> None:
    assert run(["capacity"]) == 2
    assert run(["capacity", "24d0a27b1e", "--accelerator", "H100:8"]) == 2
