"""What plans say of electricity and carbon, what is not known, and their order by it."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from answers import make_asked, make_plan, make_run

from gpuplan.catalog.snapshot import Catalogue, load_catalogue
from gpuplan.planner.plan.answer.asked_words import limit_items
from gpuplan.planner.plan.ids import plan_id
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Sort, Work
from gpuplan.planner.search.answer.ranking import mark_ties
from gpuplan.planner.search.machines.electricity import Electricity, busy_share, with_energy
from gpuplan.planner.search.machines.offers import PricedInstance, survey
from gpuplan.planner.search.outcome import SearchOutcome
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

ROOT = Path(__file__).parents[4]
CATALOGUE = load_catalogue()
P4D = Machine(instances=("p4d.24xlarge",), regions=("us-east-1",))


def choice(machine: Machine = P4D, catalogue: Catalogue = CATALOGUE) -> PricedInstance:
    return survey(catalogue, machine, Money()).choices[0]


def powered(plan: Plan, electricity: Electricity | None = None) -> Plan:
    return with_energy(plan, electricity or choice().electricity)


def answer(
    profile: Profile, *, sort: Sort | None = None, steps: int | None = 10_000
) -> SearchOutcome:
    return search(
        Question(
            work=Work(global_batch=64, steps=steps),
            machine=Machine(providers=("aws", "lambda"), max_nodes=1),
            choices=Choices(recomputes=("none",)),
            money=Money(sort=sort),
            top=10,
        ),
        profile,
        CATALOGUE,
    )


def test_a_run_states_its_electricity_and_what_the_grid_emits_for_it() -> None:
    plan = powered(make_plan(run=make_run(steps=100_000)))
    run, energy, job = plan.run, plan.energy, plan.whole_job
    assert run is not None and energy is not None and run.energy_kwh is not None
    assert job is not None
    hours = job.hours - 600 / 3600
    kwh = energy.node_power_w / 1000 * hours * 1.135
    # Ten minutes of start at less than half the power come on top.
    assert kwh < run.energy_kwh < kwh + 0.17 * energy.node_power_w / 1000
    assert run.energy_kwh_low and run.energy_kwh_high
    assert run.energy_kwh_low < run.energy_kwh < run.energy_kwh_high
    assert run.kg_co2e == pytest.approx(run.energy_kwh * 0.3791)
    assert (run.energy_basis, energy.pue_is_assumed) == ("modelled", False)
    assert energy.grid_year == "2021-2023" and "cloud-carbon" in (energy.grid_source or "")


def test_intensity_is_of_training_alone_and_there_without_an_amount_of_work() -> None:
    plan = powered(make_plan(run=None))
    energy = plan.energy
    assert plan.run is None and energy is not None
    per_step = energy.kwh_per_million_samples * plan.global_batch / 1e6
    step_h = plan.step_time_s.value / 3600
    assert per_step == pytest.approx(energy.node_power_w / 1000 * step_h * 1.135)
    samples, tokens = energy.kg_co2e_per_million_samples, energy.kg_co2e_per_million_tokens
    assert samples is not None and tokens is not None
    assert plan.tokens_per_s is not None
    assert samples / tokens == pytest.approx(plan.tokens_per_s / plan.samples_per_s)


def test_without_a_tdp_all_is_unknown() -> None:
    found = choice().electricity
    unknown = replace(found, accelerator=found.accelerator.model_copy(update={"tdp_w": None}))
    plan = make_plan(run=make_run())
    assert with_energy(plan, unknown) == plan
    assert unknown.kg_co2e_per_node_s is None


def test_without_a_grid_the_electricity_is_known_and_what_it_emits_is_not() -> None:
    plan = powered(make_plan(run=make_run()), replace(choice().electricity, region=None))
    assert plan.run is not None and plan.energy is not None
    assert plan.run.energy_kwh is not None and plan.run.kg_co2e is None
    assert plan.energy.kg_co2e_per_million_samples is None


def test_bought_hardware_has_the_power_and_the_building_that_its_owner_states() -> None:
    catalogue = load_catalogue(ROOT / "docs" / "templates" / "bought.yaml")
    mine = choice(Machine(instances=("hgx-h100-8",)), catalogue).electricity
    plan = powered(make_plan(run=make_run()), mine)
    assert plan.energy is not None
    assert (plan.energy.basis, plan.energy.node_power_w, plan.energy.pue) == ("stated", 10_200, 1.3)
    assert not plan.energy.pue_is_assumed and plan.energy.grid_kg_co2e_per_kwh is None
    prototype = choice(Machine(instances=("prototype-4",)), catalogue).electricity
    assert prototype.pue.is_assumed and prototype.power() is not None


def test_a_device_that_waits_is_not_busy() -> None:
    plan = make_plan()
    assert busy_share(plan) == pytest.approx((0.251 + 0.094 + 0.021) / 0.412)
    on_host = plan.model_copy(update={"offloaded": ("optimizer",)})
    assert busy_share(on_host) == pytest.approx((0.251 + 0.094) / 0.412)
    waiting = plan.breakdown_s.model_copy(update={"input_wait": 10.0})
    drawn = powered(plan.model_copy(update={"breakdown_s": waiting})).energy
    busy = powered(plan).energy
    assert drawn is not None and busy is not None and drawn.node_power_w < busy.node_power_w


def test_ids_made_before_still_hold() -> None:
    plan = make_plan(run=make_run())
    assert plan_id(dict(powered(plan))) == plan_id(dict(plan)) == plan.id


def test_by_carbon_a_type_is_rented_where_its_grid_is_cleanest() -> None:
    machine = Machine(instances=("p4d.24xlarge",))
    cheapest = survey(CATALOGUE, machine, Money()).choices[0]
    cleanest = survey(CATALOGUE, machine, Money(sort="carbon")).choices[0]
    assert cleanest.usd_per_hour is not None
    grids = [one.electricity.grid for one in (cleanest, cheapest)]
    assert grids[0] is not None and grids[1] is not None
    assert grids[0].kg_co2e_per_kwh < grids[1].kg_co2e_per_kwh
    everywhere = survey(CATALOGUE, machine, Money(), by_region=True).choices
    for one in everywhere:
        grid = one.electricity.grid
        if one.usd_per_hour is not None and grid is not None:
            assert grids[0].kg_co2e_per_kwh <= grid.kg_co2e_per_kwh


@pytest.mark.parametrize("steps", [10_000, None])
def test_plans_are_in_order_of_what_they_emit_and_the_unknown_come_last(
    toy: Profile, steps: int | None
) -> None:
    found = answer(toy, sort="carbon", steps=steps)
    kg = [
        (
            plan.run.kg_co2e
            if plan.run is not None
            else plan.energy and plan.energy.kg_co2e_per_million_samples
        )
        for plan in found.plans
        if not plan.stands_apart and (plan.p_oom or 0.0) <= 0.02
    ]
    known = [one for one in kg if one is not None]
    assert len(known) > 3 and None in kg
    assert known == sorted(known)
    assert kg[: len(known)] == known


def test_within_a_budget_plans_are_in_order_of_what_a_sample_emits(toy: Profile) -> None:
    question = Question(
        work=Work(global_batch=64),
        machine=Machine(providers=("aws",), max_nodes=1),
        choices=Choices(recomputes=("none",)),
        money=Money(sort="carbon", budget_usd=Decimal(100)),
        top=10,
    )
    plans = [plan for plan in search(question, toy, CATALOGUE).plans if not plan.stands_apart]
    runs = [plan.run for plan in plans if plan.run is not None]
    assert len(runs) == len(plans) > 3
    kg = [run.kg_co2e / run.trained_samples for run in runs if run.kg_co2e and run.trained_samples]
    assert len(kg) == len(runs) and kg == sorted(kg)
    assert len({run.trained_samples for run in runs}) > 1


def test_the_question_says_that_it_is_ordered_by_carbon_and_nothing_by_cost() -> None:
    said = "ordered by kg CO2e, unknown last"
    assert said in limit_items(make_asked(sort="carbon"))
    assert said not in limit_items(make_asked())


def test_ties_by_carbon_are_of_carbon() -> None:
    electricity = choice().electricity
    one, alike, other = (
        powered(make_plan(run=run).model_copy(update={"whole_job": None}), electricity)
        for run in (make_run(steps=1000), make_run(steps=1100), make_run(steps=9000, usd=3480.1))
    )
    assert [plan.tie_with_previous for plan in mark_ties([one, alike, other], "carbon")] == [
        False,
        True,
        False,
    ]
    assert mark_ties([one, other])[1].tie_with_previous
