"""The line of energy, the column of carbon: with their grid, year and PUE, and "?" for unknown."""

import re
from dataclasses import replace

import pytest
from answers import make_asked, make_estimate, make_plan, make_run

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.cli.render.plans.estimate import render_estimate
from gpuplan.cli.render.plans.explain import render_plan
from gpuplan.cli.render.plans.explain_markdown import plan_markdown
from gpuplan.cli.render.plans.markdown import render_markdown
from gpuplan.cli.render.text.energy import CARBON_MARK, energy_items
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Machine, Money
from gpuplan.planner.search.machines.electricity import Electricity, with_energy
from gpuplan.planner.search.machines.offers import survey


def electricity() -> Electricity:
    machine = Machine(instances=("p4d.24xlarge",), regions=("us-east-1",))
    return survey(load_catalogue(), machine, Money()).choices[0].electricity


@pytest.fixture
def plan() -> Plan:
    return with_energy(make_plan(run=make_run(steps=1_650_000)), electricity())


def test_one_line_says_kwh_co2e_grid_year_and_pue(plan: Plan) -> None:
    line = " · ".join(energy_items(plan))
    pattern = r"^[\d,]+–[\d,]+ kWh, likely [\d,]+ · [\d,]+–[\d,]+ kg CO2e, likely [\d,]+ "
    assert re.match(pattern, line), line
    assert line.endswith("(us-east-1 grid 2021–2023: 0.379 kg/kWh) · PUE 1.135")


def test_show_and_markdown_print_the_line_and_what_it_rests_on(plan: Plan) -> None:
    line = " · ".join(energy_items(plan))
    shown = [text.plain for text in render_plan(plan, None, sources={}, width=140)]
    assert f"Energy  {line}" in shown
    assert any("energy" in text and "TDP, not measured" in text for text in shown)
    page = plan_markdown(plan, None, sources={})
    assert f"#### Energy: {line}" in page
    assert "cloud-carbon-footprint" in page


def test_what_is_not_known_is_said_and_not_zero(plan: Plan) -> None:
    assert energy_items(make_plan(run=make_run())) == ["? kWh (power not known)"]
    elsewhere = replace(electricity(), region=None, seller=None)
    energy, carbon, pue = energy_items(with_energy(make_plan(run=make_run()), elsewhere))
    assert "kWh, likely" in energy
    assert (carbon, pue) == ("? CO2e (grid not known)", "PUE 1.1–1.6 assumed")


def test_without_work_it_is_of_a_million_samples() -> None:
    energy, carbon, _ = energy_items(with_energy(make_plan(run=None), electricity()))
    assert energy.endswith("kWh per 1M samples") and "kg CO2e per 1M samples (us-east-1" in carbon


def test_only_an_answer_ordered_by_carbon_has_a_column_of_it(plan: Plan) -> None:
    unknown = make_plan(2, run=make_run(), layout="dp8")
    by_carbon = make_estimate(plan, unknown, question=make_asked(sort="carbon"))
    text = "\n".join(t.plain for t in render_estimate(by_carbon, model="m.py", width=160))
    assert "kg CO2e" in text and CARBON_MARK in text
    assert "ordered by kg CO2e, unknown last" in text
    assert "| kg CO2e |" in render_markdown(by_carbon)
    by_cost = make_estimate(plan, unknown, question=make_asked())
    assert "CO2e" not in "\n".join(
        t.plain for t in render_estimate(by_cost, model="m.py", width=160)
    )
