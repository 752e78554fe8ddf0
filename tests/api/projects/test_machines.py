"""Hours of a machine that a project names."""

import pytest

from gpuplan.api.projects.machines import machine_cost
from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.budget.ledger import Books
from gpuplan.planner.budget.report.build import build_report
from tests.support.projects import MADE, make_planned, make_project

NODE = {"provider": "aws", "instance": "p4d.24xlarge", "region": "us-east-1", "hours": "10"}


def node(**fields: str):
    return make_project(experiments={"a": {**NODE, **fields}})


def test_spot_hours_have_the_risk_of_spot() -> None:
    for purchase, is_spot in (("on-demand", False), ("spot", True)):
        project = node(purchase=purchase)
        cost = machine_cost(project.experiments["a"], load_catalogue())
        report = build_report(
            Books(project=project, planned=(make_planned(project, cost=cost),)), MADE
        )
        assert any("spot machines may be taken away" in one for one in report.risks) is is_spot


@pytest.mark.parametrize("purchase", ["reserved", "committed-1y", "any", "all"])
def test_ways_to_pay_that_hours_are_not_priced_in_are_refused(purchase: str) -> None:
    with pytest.raises(UsageError, match=f"on demand or spot, and purchase is {purchase}"):
        machine_cost(node(purchase=purchase).experiments["a"], load_catalogue())
