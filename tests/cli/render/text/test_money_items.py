"""The money of a plan in words."""

from decimal import Decimal

import pytest
from answers import make_plan, make_run

from gpuplan.cli.render.text.money_items import amount_text, data_items, priced
from gpuplan.cli.render.text.wording import chance_text, describe_cost
from gpuplan.planner.plan.plan import CostLine, DataLine


def test_what_data_costs_is_said_beside_the_sums_and_unknown_is_not_free() -> None:
    known = DataLine(
        name="disks", quantity=1.0, unit="GB-month", unit_usd=None, usd=Decimal("4.60"), source="a"
    )
    unknown = known.model_copy(update={"name": "download", "usd": None})
    job = make_plan(run=make_run()).whole_job
    assert job is not None
    plan = make_plan(run=make_run()).model_copy(
        update={"whole_job": job.model_copy(update={"data_lines": (known, unknown)})}
    )
    assert data_items(plan) == ["not in these sums: disks $4.60, download ?"]
    assert data_items(make_plan(run=make_run())) == []


def test_a_tax_beside_is_in_the_sum_and_said_once() -> None:
    disks = DataLine(
        name="disks",
        quantity=60.0,
        unit="GB-month",
        unit_usd=Decimal("0.08"),
        usd=Decimal("4.80"),
        is_certain=True,
    )
    tax = disks.model_copy(update={"name": "tax", "unit": "USD", "usd": Decimal("1.20")})
    plan = make_plan(run=make_run())
    assert plan.whole_job is not None
    of_job = {"data_lines": (disks, tax), "total_usd": Decimal(3486)}
    job = plan.whole_job.model_copy(update=of_job)
    items = data_items(plan.model_copy(update={"whole_job": job}))
    assert items == ["the cost holds disks $4.80 and their tax; the machines alone $3,480"]


def test_a_tax_is_a_share_and_other_lines_are_amounts() -> None:
    tax = CostLine(
        name="tax", quantity=245.0, unit="USD", unit_usd=Decimal("0.19"), usd=Decimal(47)
    )
    assert priced(tax) == "19 % of $245"
    hours = tax.model_copy(
        update={"quantity": 2.5, "unit": "instance-hour", "unit_usd": Decimal(3)}
    )
    assert priced(hours) == "2.5 instance-hour at $3.00"


@pytest.mark.parametrize(("quantity", "text"), [(1234.56, "1,234.6"), (0.00123, "0.0012")])
def test_small_amounts_keep_two_digits(quantity: float, text: str) -> None:
    assert amount_text(quantity) == text


def test_a_chance_is_never_rounded_to_certainty() -> None:
    shown = [chance_text(one) for one in (0.001, 0.5, 0.999)]
    assert shown == ["less than 1 %", "50 %", "more than 99 %"]


def test_what_is_surely_paid_is_summed_and_a_missing_price_makes_it_a_lower_bound() -> None:
    disks = DataLine(
        name="disks",
        quantity=1.0,
        unit="GB-month",
        unit_usd=None,
        usd=Decimal("4.60"),
        is_certain=True,
    )
    job = make_plan(run=make_run()).whole_job
    assert job is not None
    changes = {"data_lines": (disks,), "total_usd": Decimal("3484.60")}
    whole, part = (job.model_copy(update={**changes, "lower_bound": b}) for b in (False, True))
    plan = make_plan(run=make_run()).model_copy(update={"whole_job": whole})
    assert data_items(plan) == ["the cost holds disks $4.60; the machines alone $3,480"]
    unsure = plan.model_copy(update={"whole_job": part})
    assert unsure.cost_text == f"≥ {plan.cost_text}"
    assert describe_cost(unsure) == f"≥ {describe_cost(plan)}"
