"""The ledger of a project at the user's own terms holds the list prices that they come from."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from pathlib import Path

import pytest
from answers import make_offer, make_plan, make_run

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.cli.main import run
from gpuplan.planner.budget.planned import run_cost_of

PROJECT = """\
name: study
start: 2027-01
months: 2
pricebook: book.yaml
experiments:
  fixed: {provider: aws, instance: p4d.24xlarge, region: us-east-1, hours: 10}
  spot: {provider: aws, instance: p4d.24xlarge, region: us-east-1, hours: 10, purchase: spot}
idle:
  - {provider: aws, instance: p4d.24xlarge, region: us-east-1, hours_per_month: 5}
"""


def test_a_machine_that_is_named_has_its_list_price(tmp_path: Path, capsys) -> None:
    (tmp_path / "gpuplan.yaml").write_text(PROJECT)
    (tmp_path / "book.yaml").write_text("discounts: [{percent: 25, provider: aws}]\n")
    (listed,) = [
        one
        for one in load_catalogue().offers
        if (one.provider, one.region, one.instance_type) == ("aws", "us-east-1", "p4d.24xlarge")
    ]
    assert run(["report", str(tmp_path), "--format", "focus"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    usd = listed.on_demand_usd_per_hour
    assert usd is not None
    for row in rows:
        paid, listed_usd = Decimal(row["ContractedUnitPrice"]), Decimal(row["ListUnitPrice"])
        if row["x_Experiment"] == "spot":
            assert listed_usd == paid, "the discount is off on-demand prices"
        else:
            assert (listed_usd, paid) == (usd, pytest.approx(usd * 3 / 4, abs=Decimal("1e-6")))
    assert {row["x_Experiment"] for row in rows} == {"fixed", "spot", ""}


def test_the_lines_of_a_plan_have_theirs() -> None:
    offer = make_offer(usd_per_hour=16.47, list_usd_per_hour=21.96, discount_percent=25.0)
    cost = run_cost_of(make_plan(run=make_run(), offer=offer))
    hours = [line for line in cost.lines if line.unit == "instance-hour"]
    assert hours and all(line.list_unit_usd == line.unit_usd * 100 / 75 for line in hours)
    assert cost.hour_usd is not None
    assert cost.hour_list_usd == cost.hour_usd * 100 / 75
    usual = run_cost_of(make_plan(run=make_run()))
    assert usual.hour_list_usd is None
