"""Hours of a machine that a project names."""

import pytest

from gpuplan.api.projects.machines import machine_cost
from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.listing.query import JURISDICTION_GROUPS
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


def cost_of(**fields: str):
    return machine_cost(node(**fields).experiments["a"], load_catalogue())


def test_hours_are_bought_in_the_jurisdiction_that_is_asked_for() -> None:
    anywhere, european = cost_of(region=""), cost_of(region="", jurisdiction="eu")
    assert anywhere.region == "us-east-2" and european.region is not None
    country = load_catalogue().regions[european.provider, european.region].jurisdiction
    assert country in JURISDICTION_GROUPS["eu"]
    assert anywhere.usd is not None and european.usd is not None
    assert european.usd > anywhere.usd


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"jurisdiction": "eu"},
            "p4d.24xlarge in us-east-1, in jurisdiction eu. It is sold in ap-",
        ),
        ({"region": "", "jurisdiction": "ch"}, "Nobody sells p4d.24xlarge in jurisdiction ch."),
        ({"jurisdiction": "eurasia"}, "There is no jurisdiction 'eurasia'"),
        ({"accelerator": "H100"}, "has 8 × A100-40GB-SXM, and accelerator is H100"),  # noqa: RUF001
        ({"accelerator": "A100:4"}, "and accelerator is A100:4"),
        ({"budget": "100"}, r"cost \$2\d\d, and budget, the most that one run may cost, is \$100"),
    ],
)
def test_a_machine_that_is_not_what_is_asked_for_is_refused(
    fields: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        cost_of(**fields)


def test_what_says_what_the_machine_is_changes_nothing() -> None:
    asked = {"accelerator": "A100, H100", "jurisdiction": "us", "budget": "1k", "deadline": "10h"}
    assert cost_of(**asked) == cost_of()
