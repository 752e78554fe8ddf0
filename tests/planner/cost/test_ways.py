"""Rent, commit or buy: the shares and months at which one way becomes cheaper than another."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from answers import make_offer, make_plan, make_run

from gpuplan.catalog.listing.ownership import usd_per_used_hour
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.terms.commitments import commitments_of
from gpuplan.planner.cost.ways import ways_to_pay
from gpuplan.planner.plan.plan import BuyingWay, Plan, WholeJob

TYPE, REGION = "a2-highgpu-8g", "us-central1"
BOUGHT = Path(__file__).parents[3] / "docs" / "templates" / "bought.yaml"
CATALOGUE = load_catalogue(BOUGHT)


def plan_on(kind: str, region: str, nodes: int = 2) -> Plan:
    (offer,) = [o for o in CATALOGUE.offers if (o.instance_type, o.region) == (kind, region)]
    assert offer.on_demand_usd_per_hour is not None
    usd = Decimal(1000)
    job = WholeJob(hours=20, hours_low=20, hours_high=20, usd=usd, usd_low=usd, usd_high=usd)
    chosen = make_offer(
        provider=offer.provider,
        region=region,
        instance_type=kind,
        accelerator=offer.accelerator,
        accelerators_per_node=int(offer.accelerators),
        usd_per_hour=float(offer.on_demand_usd_per_hour),
    )
    return make_plan(offer=chosen, nodes=nodes, run=make_run(), whole_job=job)


def ways_of(plan: Plan) -> dict[tuple[str, float | None], BuyingWay]:
    found = ways_to_pay(plan, CATALOGUE)
    assert found is not None and found.plan_id == plan.id
    return {(one.way, one.term_years): one for one in found.ways}


@pytest.mark.parametrize("place", [0, 1])
def test_a_term_pays_above_its_share_of_the_price_on_demand(place: int) -> None:
    plan = plan_on(TYPE, REGION)
    term = commitments_of("gcp", REGION, TYPE)[place]
    on_demand = Decimal(str(plan.offer.usd_per_hour))
    one = ways_of(plan)["committed", float(term.term_years)]
    assert one.break_even_share == pytest.approx(float(term.usd_per_hour / on_demand))
    assert one.whole_usd == pytest.approx(term.usd_per_hour * 8760 * term.term_years * 2)
    assert one.job_usd == pytest.approx(1000 * term.usd_per_hour / on_demand, abs=Decimal("0.01"))
    month = one.break_even_month
    assert month is not None and one.whole_usd is not None
    rented = [months * 730 * 2 * on_demand for months in (month - 1, month)]
    assert rented[0] < one.whole_usd <= rented[1]


def test_what_is_paid_for_a_term_is_dearer_the_less_it_is_used() -> None:
    ways = ways_of(plan_on(TYPE, REGION))
    rented = {one.share: one.usd_per_hour for one in ways["on-demand", None].by_use}
    assert set(rented) == {0.1, 0.25, 0.5, 0.75, 1.0}
    assert len(set(rented.values())) == 1
    for years in (1, 3):
        term = ways["committed", years]
        assert term.usd_per_hour is not None and term.break_even_share is not None
        for one in term.by_use:
            assert one.usd_per_hour == pytest.approx(term.usd_per_hour / one.share)
            is_cheaper = one.usd_per_hour < rented[one.share]
            assert is_cheaper == (one.share > term.break_even_share)


def test_a_machine_of_ones_own_crosses_renting_where_it_says() -> None:
    ways = ways_of(plan_on("p5.48xlarge", "us-east-1", nodes=1))
    (owned,) = [way for (kind, _), way in ways.items() if kind == "owned"]
    assert owned.break_even_share is not None
    rental = ways["on-demand", None].usd_per_hour
    assert rental is not None
    assert [one.usd_per_hour for one in owned.by_use] == sorted(
        (one.usd_per_hour for one in owned.by_use), reverse=True
    )
    assert owned.by_use[-1].usd_per_hour == pytest.approx(owned.usd_per_hour)
    for one in owned.by_use:
        assert (one.usd_per_hour < rental) == (one.share > owned.break_even_share)
    assert ways["committed", 1].by_use == ()


def test_a_price_that_nobody_states_is_listed_as_unknown() -> None:
    ways = ways_of(plan_on("p5.48xlarge", "us-east-1"))
    for years in (1, 3):
        one = ways["committed", years]
        assert (one.usd_per_hour, one.job_usd, one.whole_usd) == (None, None, None)
        assert (one.break_even_share, one.break_even_month) == (None, None)


def test_bought_hardware_pays_where_its_hour_of_use_costs_what_renting_does() -> None:
    plan = plan_on("p5.48xlarge", "us-east-1", nodes=1)
    (one,) = [way for (kind, _), way in ways_of(plan).items() if kind == "owned"]
    (owned,) = CATALOGUE.ownership.values()
    share = one.break_even_share
    assert share is not None and 0 < share < 1
    at_share = owned.model_copy(update={"utilisation": Decimal(share)})
    assert float(usd_per_used_hour(at_share)) == pytest.approx(plan.offer.usd_per_hour, rel=1e-6)
    full = owned.model_copy(update={"utilisation": Decimal(1)})
    assert one.usd_per_hour == pytest.approx(float(usd_per_used_hour(full)))
    assert one.whole_usd == owned.capex_usd
    assert one.break_even_month is not None


def test_bought_hardware_is_compared_with_renting_with_its_tax() -> None:
    plan = plan_on("p5.48xlarge", "us-east-1", nodes=1)
    taxed = plan.model_copy(update={"offer": plan.offer.model_copy(update={"tax_percent": 25.0})})
    usd_per_hour = plan.offer.usd_per_hour
    assert usd_per_hour is not None
    dearer = plan.model_copy(
        update={"offer": plan.offer.model_copy(update={"usd_per_hour": usd_per_hour * 1.25})}
    )
    with_tax, at_once, without = (
        next(way for (kind, _), way in ways_of(one).items() if kind == "owned")
        for one in (taxed, dearer, plan)
    )
    assert with_tax.break_even_share == pytest.approx(at_once.break_even_share)
    assert with_tax.break_even_month == at_once.break_even_month
    assert without.break_even_month is not None and with_tax.break_even_month is not None
    assert with_tax.break_even_month < without.break_even_month


def test_there_is_nothing_beside_machines_that_are_not_rented_on_demand() -> None:
    plan = plan_on(TYPE, REGION)
    spot = plan.model_copy(update={"offer": plan.offer.model_copy(update={"purchase": "spot"})})
    assert ways_to_pay(spot, CATALOGUE) is None
    assert ways_to_pay(plan, replace(CATALOGUE, offers=())) is None
