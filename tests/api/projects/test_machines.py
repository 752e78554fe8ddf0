"""Hours of a machine that a project names."""

from pathlib import Path

import pytest

from gpuplan.api.projects.machines import idle_price, machine_cost
from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.listing.query import JURISDICTION_GROUPS
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.budget.ledger import Books, ledger
from gpuplan.planner.budget.report.build import build_report
from tests.support.projects import MADE, make_planned, make_project

NODE = {"provider": "aws", "instance": "p4d.24xlarge", "region": "us-east-1", "hours": "10"}

OWN = """\
offers:
  - provider: lab
    region: basement
    country: de
    instance: our-node
    accelerator: H100-80GB-SXM
    accelerators_per_node: 8
    owned:
      capex_usd: 260000
      lifetime_years: 4
      power_w: 10200
      usd_per_kwh: 0.22
      pue: 1.3
      utilisation: 0.8
"""


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


def test_hours_of_machines_of_ones_own_know_no_trend_and_no_tax(tmp_path: Path) -> None:
    bought = tmp_path / "offers.yaml"
    bought.write_text(OWN)
    taxed = tmp_path / "pricebook.yaml"
    taxed.write_text("tax_percent: 20\n")
    catalogue = load_catalogue(bought, taxed)
    project = make_project(
        experiments={
            "a": {"provider": "lab", "instance": "our-node", "hours": "10"},
            "rented": NODE,
        },
        idle=[{"name": "ours", "provider": "lab", "instance": "our-node", "hours_per_month": "10"}],
        price_trend="-50%",
        months=12,
    )
    costs = {name: machine_cost(one, catalogue) for name, one in project.experiments.items()}
    assert costs["a"].is_price_agreed and not costs["rented"].is_price_agreed
    assert costs["a"].sku == "our-node owned"
    books = Books(
        project=project,
        planned=tuple(make_planned(project, name, cost=cost) for name, cost in costs.items()),
        idle=tuple(idle_price(one, catalogue) for one in project.idle),
        tax_percent=catalogue.pricebook.tax_percent,
    )
    rows = ledger(books)
    of_idle = [row for row in rows if row.name == "ours"]
    assert len(of_idle) == 12 and len({row.unit_usd for row in of_idle}) == 1
    taxed_of = {row.experiment for row in rows if row.kind == "tax"}
    assert taxed_of == {"rented"}


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
