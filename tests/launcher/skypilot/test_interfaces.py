"""How many network interfaces a launch asks for, by which setting, and what is said of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answers import make_offer, make_plan
from launches import make_task

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.terms.network_interfaces import most_interfaces
from gpuplan.catalog.terms.pricebook import Reservation
from gpuplan.launcher.prepare.request import LaunchRequest, parse_outputs
from gpuplan.launcher.skypilot.interfaces import (
    ATTACHED_TO,
    Interfaces,
    interface_notes,
    interfaces_of,
    refuse_unreachable,
)
from gpuplan.launcher.skypilot.placement import own_place, places
from gpuplan.launcher.skypilot.user_settings import AwsSettings, aws_settings

P5 = {"instance_type": "p5.48xlarge", "accelerator": "H100-80GB-SXM"}
ALL = {"aws": {"use_internal_ips": True}}


def asked(
    offer: dict[str, Any] | None = None, *, nodes: int = 2, **given: Any
) -> Interfaces | None:
    plan = make_plan(
        nodes=nodes, layout="fsdp16", global_batch=128, offer=make_offer(**(offer or P5))
    )
    facts: dict[str, Any] = {"public_ips": False, "managed": False, "settings": AwsSettings()}
    catalogue = load_catalogue()
    tried = places(plan, catalogue, spot=False, regions=(), zones=())
    return interfaces_of(plan, tried, catalogue, **{**facts, **given})


def test_all_interfaces_are_asked_for_in_the_configuration_of_the_launch() -> None:
    made = asked()
    assert made is not None
    assert (made.most, made.asked, made.config) == (32, 32, ALL)
    assert made.text == "32 of 32 interfaces a node, 400 of 400 GB/s between nodes"
    (note,) = interface_notes(made, managed=False, region="us-east-1")
    for said in (
        "no public address",
        "NAT gateway, which is billed $0.045 an hour and $0.045 a GB and is in none of these sums",
        "session-manager-plugin",
        "a gateway endpoint for S3",
    ):
        assert said in note
    assert "--public-ips" in note


@pytest.mark.parametrize(
    ("region", "checkpoint_bytes", "said"),
    [
        ("us-east-1", 840 * 2**30, "(a checkpoint that goes to a bucket through it $37.80)"),
        ("eu-west-3", 840 * 2**30, "billed by the hour and by the GB and"),
    ],
)
def test_a_nat_gateway_is_said_in_dollars_where_they_are_known(
    region: str, checkpoint_bytes: float, said: str
) -> None:
    (note,) = interface_notes(
        asked(), managed=False, region=region, checkpoint_bytes=checkpoint_bytes
    )
    assert said in note


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({"public_ips": True}, 1),
        ({"managed": True}, 1),
        ({"settings": AwsSettings(internal_ips=False)}, 1),
        ({"settings": AwsSettings(internal_ips=True)}, 32),
        ({"settings": AwsSettings(internal_ips=True), "managed": True}, 32),
    ],
)
def test_what_the_user_says_holds(given: dict[str, Any], count: int) -> None:
    made = asked(**given)
    assert made is not None
    assert (made.asked, made.config) == (count, None)
    notes = interface_notes(made, managed=given.get("managed", False), region="us-east-1")
    assert len(notes) == (count == 1)
    if notes:
        assert "counts on 32 network interfaces a node and gets 1" in notes[0]
        assert "12.5 of 400 GB/s" in made.text


def test_public_addresses_take_the_place_of_the_settings() -> None:
    made = asked(public_ips=True, settings=AwsSettings(internal_ips=True))
    assert made is not None
    assert (made.asked, made.config) == (1, {"aws": {"use_internal_ips": False}})


def test_one_node_and_other_clouds_need_none() -> None:
    assert asked(nodes=1) is None
    plan = make_plan(nodes=2, layout="fsdp16", global_batch=128, offer=make_offer(**P5))
    facts: dict[str, Any] = {"public_ips": False, "managed": False, "settings": AwsSettings()}
    mine = (own_place("k8s/mine", plan, spot=False),)
    assert interfaces_of(plan, mine, load_catalogue(), **facts) is None


def test_types_to_which_skypilot_attaches_none_are_said() -> None:
    catalogue = load_catalogue()
    left_out = {
        kind
        for (provider, kind) in catalogue.instances
        if provider == "aws"
        and most_interfaces("aws", kind)
        and kind.partition(".")[0] not in ATTACHED_TO
    }
    assert "trn1.32xlarge" in left_out and "p5.48xlarge" not in left_out
    made = Interfaces(most=8, asked=0, bytes_per_s=1e11)
    (note,) = interface_notes(made, managed=False, region="us-east-1")
    assert "gets 0, SkyPilot 0.14 attaches none to this type" in note


def test_a_reservation_and_all_interfaces_are_one_configuration(tmp_path: Path) -> None:
    plan = make_plan(layout="fsdp16", nodes=2, global_batch=128, offer=make_offer(**P5))
    book = Reservation.model_validate(
        {
            "provider": "aws",
            "instance": "p5.48xlarge",
            "region": "us-east-1",
            "usd_per_hour": 30,
            "term_years": 1,
            "count": 2,
            "id": "cr-0123456789abcdef0",
        }
    )
    tried = tuple(
        replace(one, is_of_term=True)
        for one in places(plan, load_catalogue(), spot=False, regions=(), zones=())
    )
    request = LaunchRequest(outputs=parse_outputs("s3://results/team"))
    task = make_task(plan, request, tried=tried, reservation=book, interfaces=asked())
    assert task.sky_config == {
        "aws": {"specific_reservations": ["cr-0123456789abcdef0"], "use_internal_ips": True}
    }
    assert "sky-config.yaml" in task.command
    assert make_task(plan, request, interfaces=None).sky_config is None


def test_machines_that_cannot_be_reached_are_not_rented() -> None:
    with pytest.raises(UsageError, match="session-manager-plugin is not installed") as caught:
        refuse_unreachable(asked(), has_plugin=False)
    assert "--public-ips" in (caught.value.fix or "")
    refuse_unreachable(asked(), has_plugin=True)
    refuse_unreachable(asked(settings=AwsSettings(has_proxy=True)), has_plugin=False)
    refuse_unreachable(asked(public_ips=True), has_plugin=False)
    refuse_unreachable(None, has_plugin=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "aws: {use_internal_ips: true, use_ssm: false}",
            AwsSettings(internal_ips=True, has_proxy=True),
        ),
        ("aws: {ssh_proxy_command: ssh -W %h:%p jump}", AwsSettings(has_proxy=True)),
        ("aws: {use_ssm: true}", AwsSettings()),
        ("aws: 3", AwsSettings()),
        ("", AwsSettings()),
    ],
)
def test_the_settings_of_the_user_are_read(
    tmp_path: Path, text: str, expected: AwsSettings
) -> None:
    (tmp_path / ".sky").mkdir()
    (tmp_path / ".sky" / "config.yaml").write_text(text)
    assert aws_settings({}, tmp_path) == expected
