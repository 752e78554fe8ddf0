"""Ways of paying: a commitment is paid whole, and wins where the work fills it alone."""

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from gpuplan.catalog.embedded import Catalogue, embedded_catalogue
from gpuplan.catalog.snapshot import at_terms
from gpuplan.catalog.terms.commitments import commitments_of
from gpuplan.catalog.terms.pricebook import (
    CapacityBlock,
    Credit,
    Discount,
    Pricebook,
    Reservation,
)
from gpuplan.cli.render.text.money_items import terms_items
from gpuplan.planner.cost.launch_cost import launch_cost
from gpuplan.planner.cost.paid_whole import FURTHER, PaidWhole
from gpuplan.planner.plan.plan import Estimated, Plan
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.search.machines.offers import survey
from gpuplan.planner.search.outcome import SearchOutcome
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

TYPE, REGION = "a2-highgpu-8g", "us-central1"
HOURS_PER_YEAR = 8760


def without_spot() -> Catalogue:
    real = embedded_catalogue()
    offers = tuple(one.model_copy(update={"spot_usd_per_hour": None}) for one in real.offers)
    return replace(real, offers=offers)


NO_SPOT = without_spot()


def asked(
    profile: Profile, steps: int | None, catalogue: Catalogue = NO_SPOT, nodes: int = 1, **money
) -> SearchOutcome:
    question = Question(
        work=Work(steps=steps, global_batch=max(64, 8 * nodes)),
        machine=Machine(
            providers=("gcp", "aws"),
            regions=(REGION, "us-east-1"),
            instances=(TYPE, "p5.48xlarge"),
            nodes=(nodes,),
        ),
        choices=Choices(recomputes=("none",), precisions=("bf16-amp",)),
        money=Money(deadline_s=1e12, **money),
        by="instance",
    )
    return search(question, profile, catalogue)


def plan_on(found: SearchOutcome, kind: str = TYPE) -> Plan:
    return next(plan for plan in found.plans if plan.offer.instance_type == kind)


def prices() -> tuple[Decimal, Decimal, Decimal]:
    """Return the price of an hour on demand, committed for one and for three years."""
    offer = next(o for o in NO_SPOT.offers if (o.instance_type, o.region) == (TYPE, REGION))
    one, three = commitments_of("gcp", REGION, TYPE)
    assert offer.on_demand_usd_per_hour is not None
    return offer.on_demand_usd_per_hour, one.usd_per_hour, three.usd_per_hour


def steps_of_hours(profile: Profile, hours: float) -> int:
    plan = plan_on(asked(profile, 10**9))
    assert plan.whole_job is not None
    return round(hours / plan.whole_job.hours * 10**9)


@pytest.mark.parametrize("used", [0.03, 0.5, 0.65, 0.75, 0.9])
def test_a_commitment_wins_only_where_the_work_fills_it(toy: Profile, used: float) -> None:
    on_demand, one_year, three_years = prices()
    plan = plan_on(asked(toy, steps_of_hours(toy, used * HOURS_PER_YEAR), purchase="any"))
    job = plan.whole_job
    assert job is not None and job.usd is not None
    hours = Decimal(job.hours)
    costs = {
        None: on_demand * hours,
        1.0: one_year * HOURS_PER_YEAR,
        3.0: three_years * 3 * HOURS_PER_YEAR,
    }
    best = min(costs, key=lambda term: costs[term])
    assert plan.offer.term_years == best
    assert plan.offer.purchase == ("on-demand" if best is None else "committed")
    further = Decimal(0) if plan.commitment is None else plan.commitment.further_usd or Decimal(0)
    assert float(job.usd - further) == pytest.approx(float(costs[best]), rel=1e-4)
    assert job.usd == sum(line.usd for line in job.cost_lines)
    assert (plan.commitment is None) == (best is None)
    if plan.commitment is not None:
        assert plan.commitment.unused_is_counted
        assert plan.commitment.used_share == pytest.approx(used, rel=0.01)


def test_a_job_longer_than_a_term_pays_the_next_one_too() -> None:
    year_s = HOURS_PER_YEAR * 3600.0
    exactly = {"value": 1.02 * year_s, "low": 1.02 * year_s, "high": 1.02 * year_s}
    step = Estimated(**exactly, basis="analytic")
    cost = launch_cost(
        step,
        nodes=2,
        usd_per_hour=Decimal(3),
        dearest_usd_per_hour=Decimal(3),
        billing=None,
        paid_whole=PaidWhole(lengths_s=(year_s,)),
    )
    assert cost.usd_expected == sum(line.usd for line in cost.lines) == 2 * 2 * 3 * HOURS_PER_YEAR
    assert cost.lines[-1].name == "unused commitment"
    assert cost.hours_expected == pytest.approx(1.02 * HOURS_PER_YEAR, rel=1e-3)


@pytest.mark.parametrize(("wish", "years"), [("committed-1y", 1), ("committed-3y", 3)])
def test_a_commitment_that_is_asked_for_costs_its_share_and_shows_the_rest(
    toy: Profile, wish: str, years: int
) -> None:
    hourly = prices()[years if years == 1 else 2]
    plan = plan_on(asked(toy, steps_of_hours(toy, 300), purchase=wish))
    job, use = plan.whole_job, plan.commitment
    assert plan.offer.purchase == "committed" and plan.offer.term_years == years
    assert plan.offer.price_basis == "commitment" and plan.offer.price_date is not None
    assert job is not None and job.usd is not None and use is not None
    assert float(job.usd) == pytest.approx(float(hourly) * job.hours, rel=1e-3)
    assert not use.unused_is_counted
    assert use.unused_usd == use.usd - job.usd
    assert float(use.usd) == pytest.approx(float(hourly) * years * HOURS_PER_YEAR, abs=0.01)
    assert use.used_share == pytest.approx(job.hours / (years * HOURS_PER_YEAR))


def test_where_no_commitment_is_known_none_is_made_up(toy: Profile) -> None:
    found = asked(toy, 1000, purchase="committed-1y")
    assert "p5.48xlarge" not in {plan.offer.instance_type for plan in found.plans}
    found = asked(toy, 1000, purchase="reserved")
    assert not found.plans
    assert any("no reserved price" in note for note in found.notes)


RESERVED = Reservation(
    provider="aws",
    instance="p5.48xlarge",
    region="us-east-1",
    usd_per_hour=Decimal("10"),
    upfront_usd=Decimal("87600"),
    term_years=Decimal(1),
    count=2,
)


def test_a_held_reservation_costs_its_share_also_beside_other_ways(toy: Profile) -> None:
    mine = at_terms(NO_SPOT, Pricebook(reserved=(RESERVED,)))
    for wish in ("reserved", "any"):
        plan = plan_on(asked(toy, 10**6, mine, purchase=wish), "p5.48xlarge")
        assert plan.offer.purchase == "reserved"
        assert plan.offer.usd_per_hour == pytest.approx(20)
        assert plan.offer.price_basis == "pricebook"
        assert plan.commitment is not None and plan.commitment.nodes_held == 2
        assert not plan.commitment.unused_is_counted
        assert not plan.usually_reserved


@pytest.mark.parametrize(("nodes", "fits"), [(1, True), (2, True), (3, False)])
def test_no_more_is_planned_than_is_held(toy: Profile, nodes: int, fits: bool) -> None:
    mine = at_terms(NO_SPOT, Pricebook(reserved=(RESERVED,)))
    found = asked(toy, 10**6, mine, nodes=nodes, purchase="reserved")
    assert bool(found.plans) == fits
    assert fits or found.rejected.no_price > 0


def test_a_budget_buys_whole_terms_and_then_hours_on_demand(toy: Profile) -> None:
    """The dollars of a term are sure: what is left to chance is whether one is enough."""
    on_demand, one_year, _ = prices()
    year_usd = one_year * HOURS_PER_YEAR
    found = plan_on(asked(toy, 10**8, purchase="committed-1y"))
    assert found.run is not None
    steps = int(10**8 * 0.93 * HOURS_PER_YEAR / (found.run.expected_hours or 0))

    def committed(budget_usd: Decimal | None = None) -> Plan:
        plan = plan_on(asked(toy, steps, purchase="any", budget_usd=budget_usd))
        assert plan.offer.term_years == 1
        return plan

    plan = committed()
    job, use = plan.whole_job, plan.commitment
    assert job is not None and job.usd is not None and use is not None
    assert use.unused_is_counted and use.terms == 1
    # Some of the runs take longer than the year: their hours are at the price of the term, and
    # what they cost above it on demand is a line of its own.
    assert use.usd == pytest.approx(year_usd, abs=Decimal("0.01"))
    further = next(line for line in job.cost_lines if line.name == FURTHER)
    assert further.unit_usd == pytest.approx(on_demand - one_year, abs=Decimal("0.00001"))
    assert use.further_usd is not None and job.usd == use.usd + use.further_usd
    beyond_usd = further.quantity * float(on_demand)
    assert float(use.further_usd) == pytest.approx(beyond_usd, abs=0.02) and beyond_usd > 0
    unused = next(line for line in job.cost_lines if line.name == "unused commitment")
    assert unused.quantity == pytest.approx(HOURS_PER_YEAR - job.hours + further.quantity, abs=0.01)
    # What nine of ten runs take, by hand.
    ninth_usd = year_usd + on_demand * (Decimal(job.hours_high) - HOURS_PER_YEAR)
    assert job.usd_high == pytest.approx(ninth_usd, rel=Decimal("1e-4"))
    assert job.usd_low == pytest.approx(year_usd, abs=Decimal("0.01"))
    run = committed(ninth_usd).run
    assert run is not None and run.budget_probability == pytest.approx(0.9, abs=0.002)


def test_a_job_that_ends_soon_after_a_term_takes_its_last_hours_on_demand(toy: Profile) -> None:
    """1.02 years: two terms would cost 2, and one with the rest on demand 1.03 and some doubt."""
    on_demand, one_year, _ = prices()
    steps = steps_of_hours(toy, 1.02 * HOURS_PER_YEAR)
    plan = plan_on(asked(toy, steps, purchase="any"))
    assert plan.offer.term_years == 1 and plan.commitment is not None
    job, use = plan.whole_job, plan.commitment
    assert job is not None and job.usd is not None and use.further_usd is not None
    year_usd = one_year * HOURS_PER_YEAR
    assert (use.terms, use.used_share) == (1, 1.0)
    assert use.usd == pytest.approx(year_usd, abs=Decimal("0.01"))
    assert job.usd == use.usd + use.further_usd == sum(line.usd for line in job.cost_lines)
    rest_usd = on_demand * (Decimal(job.hours) - HOURS_PER_YEAR)
    assert rest_usd < use.further_usd < year_usd - rest_usd
    assert all(line.usd >= 0 for line in job.cost_lines)
    (said,) = [one for one in terms_items(plan) if "on demand" in one]
    assert said.startswith("the hours after it on demand, for less than another term: $")
    # As many runs as one term holds keep to its price: the rest is left to chance.
    run = plan_on(asked(toy, steps, purchase="any", budget_usd=2 * year_usd)).run
    assert run is not None and (run.budget_probability or 0) > 0.9


def test_a_price_that_is_offered_and_not_signed_is_a_commitment(toy: Profile) -> None:
    offered = RESERVED.model_copy(update={"count": None})
    mine = at_terms(NO_SPOT, Pricebook(reserved=(offered,)))
    plan = plan_on(asked(toy, 10**6, mine, purchase="committed-1y"), "p5.48xlarge")
    assert plan.offer.purchase == "committed" and plan.offer.price_basis == "pricebook"


def test_a_discount_on_commitments_is_taken_off_them_alone(toy: Profile) -> None:
    on_demand, one_year, _ = prices()
    book = Pricebook(discounts=(Discount(percent=Decimal(10), purchase="committed"),))
    mine = at_terms(NO_SPOT, book)
    plan = plan_on(asked(toy, 1000, mine, purchase="committed-1y"))
    assert plan.offer.usd_per_hour == pytest.approx(float(one_year) * 0.9)
    assert plan.offer.discount_percent == 10
    assert plan.offer.list_usd_per_hour == pytest.approx(float(one_year))
    plan = plan_on(asked(toy, 1000, mine))
    assert plan.offer.usd_per_hour == pytest.approx(float(on_demand))
    assert plan.offer.discount_percent is None


def test_tax_and_discount_are_in_what_ranks_and_in_what_is_shown(toy: Profile) -> None:
    on_demand, _, _ = prices()
    book = Pricebook(
        discounts=(Discount(percent=Decimal(50), instance=TYPE),),
        tax_percent=Decimal(20),
        credits=(Credit(provider="gcp", usd=Decimal(5), expires=date(2030, 1, 1)),),
    )
    plain = plan_on(asked(toy, 10**6))
    plan = plan_on(asked(toy, 10**6, at_terms(NO_SPOT, book)))
    assert plan.offer.usd_per_hour == pytest.approx(float(on_demand) / 2)
    assert plan.offer.tax_percent == 20
    assert plan.whole_job is not None and plain.whole_job is not None
    assert plan.whole_job.cost_lines[-1].name == "tax"
    assert plan.whole_job.usd == sum(line.usd for line in plan.whole_job.cost_lines)
    assert float(plan.whole_job.usd or 0) == pytest.approx(
        float(plain.whole_job.usd or 0) * 0.5 * 1.2, abs=0.1
    )


def test_without_an_amount_of_work_no_commitment_is_compared() -> None:
    machine = Machine(providers=("gcp",))
    for has_amount in (False, True):
        market = survey(NO_SPOT, machine, Money(purchase="any"), has_amount=has_amount)
        assert any(one.term is not None for one in market.choices) == has_amount


BLOCK = CapacityBlock(
    provider="aws", instance="p5.48xlarge", region="us-east-1", usd_per_hour=Decimal(20)
)


def test_a_capacity_block_is_paid_whole_and_its_rest_is_a_line(toy: Profile) -> None:
    """By hand: 30 hours fit into two days; 48 h x $20 and 10 % of tax are $1,056.

    Of the runs a few take longer and need a third day.
    """
    mine = at_terms(NO_SPOT, Pricebook(blocks=(BLOCK,), tax_percent=Decimal(10)))
    steps = 10**9
    first = plan_on(asked(toy, steps, mine, purchase="block"), "p5.48xlarge").whole_job
    assert first is not None
    steps = round(30 / first.hours * steps)
    plan = plan_on(asked(toy, steps, mine, purchase="block"), "p5.48xlarge")
    job, use = plan.whole_job, plan.commitment
    assert job is not None and use is not None and job.hours == pytest.approx(30, rel=0.02)
    assert (plan.offer.purchase, plan.offer.term_years) == ("block", None)
    assert job.usd == sum(line.usd for line in job.cost_lines)
    assert use.usd == job.usd_low == Decimal("1056.00")
    assert job.usd is not None and use.usd is not None and use.further_usd is not None
    assert use.further_usd == job.usd - use.usd and 0 < use.further_usd < 20
    rest = {line.name: line for line in job.cost_lines}["unused capacity block"]
    assert rest.quantity == pytest.approx(48 - job.hours, abs=0.01)
    assert (use.block_days, use.terms, use.unused_is_counted) == (2, 1, True)
    assert float(use.unused_usd or 0) == pytest.approx(1.1 * float(rest.usd), abs=0.01)
    assert use.used_share == pytest.approx(job.hours / 48)


def test_a_block_wins_only_where_the_job_fills_it(toy: Profile) -> None:
    """$20 an hour for whole days beside $55 on demand: above 9 hours of the day."""
    mine = at_terms(NO_SPOT, Pricebook(blocks=(BLOCK,)))
    whole = plan_on(asked(toy, 10**9, mine), "p5.48xlarge")
    assert whole.whole_job is not None and whole.offer.usd_per_hour is not None
    pays_from = 24 * 20 / whole.offer.usd_per_hour
    for hours, way in ((pays_from - 1, "on-demand"), (pays_from + 1, "block")):
        steps = round(hours / whole.whole_job.hours * 10**9)
        plan = plan_on(asked(toy, steps, mine, purchase="any"), "p5.48xlarge")
        assert plan.offer.purchase == way


@pytest.mark.parametrize(("hours", "share"), [(23.0, 0.35), (15.0, 0.0)])
def test_runs_that_outlast_a_block_need_more_days(toy: Profile, hours: float, share: float) -> None:
    """Of the runs that are expected to fill a block of a day many take longer than its 23.5 h."""
    mine = at_terms(NO_SPOT, Pricebook(blocks=(BLOCK,)))
    first = plan_on(asked(toy, 10**9, mine, purchase="block"), "p5.48xlarge").whole_job
    assert first is not None
    steps = round(hours / first.hours * 10**9)
    found = asked(toy, steps, mine, purchase="block")
    plan = plan_on(found, "p5.48xlarge")
    job, use = plan.whole_job, plan.commitment
    assert job is not None and job.usd is not None and use is not None
    assert (use.usd, use.block_days) == (480, 1)
    assert share * 480 <= (use.further_usd or 0) <= (share + 0.15) * 480
    assert job.usd == sum(line.usd for line in job.cost_lines) == 480 + (use.further_usd or 0)
    # Of nine in ten runs; the interval holds what is expected of all.
    assert job.usd_high == max(Decimal(960 if share else 480), job.usd)


def test_a_block_has_no_more_instances_than_aws_puts_into_one(toy: Profile) -> None:
    mine = at_terms(NO_SPOT, Pricebook(blocks=(BLOCK,)))
    for nodes, fits in ((64, True), (65, False)):
        found = asked(toy, 10**6, mine, nodes=nodes, purchase="block")
        assert any(one.offer.purchase == "block" for one in found.plans) == fits
        assert any("64 instances at most" in note for note in found.notes) != fits


def test_a_budget_buys_whole_blocks(toy: Profile) -> None:
    mine = at_terms(NO_SPOT, Pricebook(blocks=(BLOCK,)))
    for usd, days in ((479, 0), (482, 1), (1000, 2)):
        found = asked(toy, None, mine, purchase="block", budget_usd=Decimal(usd))
        plans = [one for one in found.plans if one.offer.instance_type == "p5.48xlarge"]
        assert bool(plans) == bool(days)
        for plan in plans:
            assert plan.whole_job is not None and plan.whole_job.usd == days * 480
            assert days * 24 - 1 < plan.whole_job.hours <= days * 24 - 0.5


def test_without_a_quoted_price_a_block_is_unknown(toy: Profile) -> None:
    found = asked(toy, 1000, purchase="block")
    assert not found.plans
    assert any("no price of a capacity block" in note for note in found.notes)
