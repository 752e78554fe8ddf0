"""What the first page says of who pays."""

import pytest

from gpuplan.planner.budget.report.build import build_report
from tests.support.projects import MADE, make_books, make_project


def said(*funding: dict, **fields) -> str:
    project = make_project(funding=funding, **fields)
    return " ".join(build_report(make_books(project), MADE).summary)


@pytest.mark.parametrize(
    ("usd", "contingency", "words"),
    [
        (20, "0%", "All of it is funded."),
        (15, "0%", "$5.00 of it is paid by no source of money."),
        (15, "10%", "$5.00 of it is paid by no source of money, nor $2.00 of the contingency."),
        (21, "10%", "The planned cost is funded, but $1.00 of the contingency is not."),
        (22, "10%", "The planned cost is funded, and so is the contingency."),
    ],
)
def test_the_contingency_is_told_from_the_planned_cost(usd, contingency, words) -> None:
    assert words in said({"name": "lab", "usd": usd}, contingency=contingency)


def test_credits_of_a_provider_and_money_that_expires_are_no_contingency() -> None:
    short = "The planned cost is funded, but $2.00 of the contingency is not."
    credits = {"name": "credits", "usd": 90, "kind": "credits", "provider": "aws"}
    assert short in said(credits, contingency="10%")
    early = {"name": "lab", "usd": 90, "expires": "2027-03-31"}
    assert short in said(early, contingency="10%")
    late = {"name": "lab", "usd": 90, "expires": "2027-06-30"}
    assert "and so is the contingency" in said(late, contingency="10%")


def test_indirect_cost_is_said_to_be_beside_the_sums() -> None:
    found = said({"name": "grant", "usd": 100, "indirect": "55%"})
    assert "in none of these sums: the sources pay $11.00 of it beside the planned cost" in found
    # After 20 of cost and 11 of indirect cost 2.33 are left, which pay 1.50 and its 55 %.
    short = said({"name": "grant", "usd": 33.33, "indirect": "55%"}, contingency="10%")
    assert "but $0.50 of the contingency is not" in short
    assert "Indirect" not in said({"name": "lab", "usd": 100})


@pytest.mark.parametrize(
    ("expires", "usd", "words"),
    [
        ("2020-01-01", 90, "lab pays nothing: it expires on 2020-01-01, before the project begins"),
        ("2027-03-31", 90, "$70.00 of lab expires unused on 2027-03-31: run earlier, or shift"),
        ("2027-06-30", 90, "$70.00 of lab is not needed for the planned cost, and expires on"),
    ],
)
def test_money_that_lapses_is_said_with_what_to_do_about_it(expires, usd, words) -> None:
    assert words in said({"name": "lab", "usd": usd, "expires": expires})


def test_a_cent_that_no_cost_comes_to_exactly_lapses_without_a_word() -> None:
    """Of $500 with 10 % of indirect cost "$0.01 expires unused: run earlier" was said."""
    grant = {"name": "grant", "usd": "5", "indirect": "10%", "expires": "2027-06-30"}
    assert "of grant" not in said(grant)
    assert "of grant" in said({**grant, "usd": "500"})
