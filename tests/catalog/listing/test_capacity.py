from datetime import timedelta
from decimal import Decimal

import pytest
from fake_cloud import NOW, quota

from gpuplan.catalog.clouds.interface import (
    Availability,
    Quotas,
    Reservation,
    Reservations,
    Unanswered,
    Zones,
)
from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.catalog.listing.capacity import CapacityLine, CloudAnswer, capacity_lines, in_order

CATALOGUE = embedded_catalogue()
INSTANCES = {"p5.48xlarge": CATALOGUE.instances["aws", "p5.48xlarge"]}


def zones(*names: str, restricted: str | None = None) -> Availability:
    return Availability(
        zones=(
            Zones(
                region="us-east-1",
                instance_type="p5.48xlarge",
                zones=names,
                restricted=restricted,
            ),
        )
    )


def line(nodes: int = 4, **said) -> CapacityLine:
    given = {"provider": "aws", "availability": zones("us-east-1a")}
    [found] = capacity_lines(
        CATALOGUE,
        CloudAnswer(**(given | said)),
        INSTANCES,
        ["us-east-1"],
        nodes=nodes,
        purchase="on-demand",
        now=NOW,
    )
    return found


def held(free: int, **changes) -> Reservations:
    given = {
        "region": "us-east-1",
        "zone": "us-east-1a",
        "id": "cr-1",
        "instance_type": "p5.48xlarge",
        "kind": "capacity block",
        "instances": 4,
        "free": free,
        "starts": NOW - timedelta(days=1),
        "ends": NOW + timedelta(days=6),
    }
    return Reservations(held=(Reservation(**(given | changes)),))


@pytest.mark.parametrize(
    ("limit", "used", "startable", "enough"),
    [
        (768, 0, "yes", True),
        (768, 1, "no", False),  # 4 nodes of 192 vCPUs need all of it.
        (767, 0, "no", False),
        (768, None, "unknown", None),
        (100, None, "no", False),  # The limit alone does not do.
    ],
)
def test_quota_is_enough_for_what_is_left_of_it(limit, used, startable, enough) -> None:
    found = line(quotas=Quotas(quotas=(quota(limit, used),)))
    assert found.startable == startable
    [one] = found.quotas
    assert (one.needed, one.enough) == (768.0, enough)


def test_missing_quota_has_the_command_that_asks_for_it() -> None:
    short = quota(192, 96)
    key = ("p5.48xlarge", "us-east-1", "L-417A185B")
    found = line(quotas=Quotas(quotas=(short,)), commands={key: "ask"})
    assert found.quotas[0].command == "ask"
    enough = line(1, quotas=Quotas(quotas=(quota(192, 0),)), commands={key: "ask"})
    assert enough.quotas[0].command is None


def test_two_quotas_must_both_be_enough() -> None:
    everywhere = quota(100, 0, region="global", name="ALL", code="ALL")
    found = line(quotas=Quotas(quotas=(quota(9999, 0), everywhere)))
    assert found.startable == "no"


def test_what_is_not_offered_or_restricted_cannot_be_started() -> None:
    plenty = Quotas(quotas=(quota(9999, 0),))
    assert line(quotas=plenty, availability=zones()).startable == "no"
    closed = zones("us-east-1a", restricted="restricted: QuotaId")
    assert line(quotas=plenty, availability=closed).startable == "no"
    assert line(quotas=plenty, availability=Availability()).startable == "unknown"


def test_without_an_answer_it_is_unknown_and_says_why() -> None:
    silent = Unanswered(
        question="quota",
        region="us-east-1",
        why="not permitted",
        permission="servicequotas:ListServiceQuotas",
    )
    found = line(quotas=Quotas(unanswered=(silent,)))
    assert found.startable == "unknown"
    assert found.unknown == ("quota: not permitted: needs servicequotas:ListServiceQuotas",)
    elsewhere = silent.model_copy(update={"region": "us-west-2"})
    plenty = (quota(9999, 0),)
    assert line(quotas=Quotas(quotas=plenty, unanswered=(elsewhere,))).unknown == ()


def test_a_reservation_that_runs_needs_no_quota() -> None:
    none = Quotas(quotas=(quota(0, 0),))
    assert line(quotas=none, reservations=held(4)).startable == "yes"
    assert line(quotas=none, reservations=held(3)).startable == "no"
    later = held(4, starts=NOW + timedelta(hours=1))
    assert line(quotas=none, reservations=later).startable == "no"
    over = held(4, ends=NOW)
    assert line(quotas=none, reservations=over).startable == "no"


def test_the_price_is_that_of_all_nodes() -> None:
    assert line(4).usd_per_hour == 4 * Decimal("55.04")


def test_what_can_be_started_comes_first_then_the_cheapest() -> None:
    base = line()
    lines = [
        base.model_copy(update={"startable": state, "usd_per_hour": usd, "region": region})
        for state, usd, region in (
            ("no", Decimal(1), "a"),
            ("yes", None, "b"),
            ("yes", Decimal(9), "c"),
            ("unknown", Decimal(2), "d"),
            ("yes", Decimal(3), "e"),
        )
    ]
    assert [one.region for one in in_order(lines)] == ["e", "c", "b", "d", "a"]


def google(name: str, purchase, **said) -> CapacityLine:
    """Return the line of a machine that is offered, and of which the quota allows one."""
    given = {
        "provider": "gcp",
        "availability": Availability(
            zones=(Zones(region="us-central1", instance_type=name, zones=("us-central1-a",)),)
        ),
        "quotas": Quotas(
            quotas=(quota(8, 0, region="us-central1", instance_type=name, per_instance=1.0),)
        ),
    }
    [found] = capacity_lines(
        CATALOGUE,
        CloudAnswer(**(given | said)),
        {name: CATALOGUE.instances["gcp", name]},
        ["us-central1"],
        nodes=1,
        purchase=purchase,
        now=NOW,
    )
    return found


def test_what_is_not_sold_on_demand_cannot_be_started_so() -> None:
    assert google("a3-highgpu-8g", "on-demand").startable == "yes"
    assert google("a3-highgpu-1g", "spot").startable == "yes"
    small = google("a3-highgpu-1g", "on-demand")
    assert small.startable == "no"
    assert small.restricted == "sold as Spot and by flex-start alone"
    mine = held(1, region="us-central1", instance_type="a3-highgpu-1g")
    assert google("a3-highgpu-1g", "on-demand", reservations=mine).startable == "yes"


def test_what_is_had_by_reservation_is_not_promised_on_demand() -> None:
    found = google("a4-highgpu-8g", "on-demand")
    assert found.startable == "unknown" and found.restricted is None
    assert found.unknown[0] == "on demand: it is had by reservation"
    assert google("a4-highgpu-8g", "spot").startable == "yes"
