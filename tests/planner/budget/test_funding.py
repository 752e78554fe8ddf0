"""Which source of money pays what."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.budget.funding import funding_rows
from gpuplan.planner.budget.ledger import ledger, total_usd
from tests.support.projects import make_books, make_project

EXTRA = [{"name": "licence", "usd": 100}]
"""100 dollars in each of six months, beside a run of 20 at aws in the first."""


def paid(*funding: dict, **fields):
    project = make_project(funding=funding, extras=EXTRA, **fields)
    return funding_rows(project, ledger(make_books(project)))


def test_without_funding_nothing_is_said() -> None:
    assert paid() == ((), None)


def test_a_budget_pays_everything_until_it_is_spent() -> None:
    (row,), open_usd = paid({"name": "lab", "usd": 250})
    assert (row.covers_usd, row.left_usd, open_usd) == (250, 0, Decimal("370.00"))


def test_credits_pay_their_provider_alone_and_before_other_money() -> None:
    (lab, credits), open_usd = paid(
        {"name": "lab", "usd": 1000},
        {"name": "aws credits", "usd": 500, "kind": "credits", "provider": "aws"},
    )
    assert credits.covers_usd == Decimal("20.00")
    assert lab.covers_usd == Decimal("600.00")
    assert open_usd == 0


def test_what_expires_first_is_spent_first_and_its_rest_lapses() -> None:
    (late, early), open_usd = paid(
        {"name": "late", "usd": 10_000},
        {"name": "early", "usd": 1000, "expires": "2027-02-15"},
    )
    assert early.covers_usd == Decimal("220.00")
    assert early.lapses_usd == Decimal("780.00")
    assert late.covers_usd == Decimal("400.00")
    assert late.lapses_usd == 0
    assert open_usd == 0


def test_an_indirect_rate_takes_more_from_the_grant_than_the_cost() -> None:
    (grant,), open_usd = paid({"name": "grant", "usd": 310, "kind": "grant", "indirect": "55%"})
    assert grant.covers_usd == Decimal("200.00")
    assert grant.indirect_usd == Decimal("110.00")
    assert grant.left_usd == 0
    assert open_usd == Decimal("420.00")


@given(
    caps=st.lists(st.integers(1, 900), min_size=1, max_size=4),
    rates=st.lists(st.integers(0, 80), min_size=4, max_size=4),
)
def test_every_dollar_is_paid_by_a_source_or_by_none(caps: list[int], rates: list[int]) -> None:
    funding = [
        {"name": f"s{i}", "usd": cap, "indirect": f"{rates[i]}%"} for i, cap in enumerate(caps)
    ]
    project = make_project(funding=funding, extras=EXTRA)
    rows = ledger(make_books(project))
    sources, open_usd = funding_rows(project, rows)
    assert open_usd is not None
    assert sum(one.covers_usd for one in sources) + open_usd == total_usd(rows)
    for one in sources:
        assert one.covers_usd + one.indirect_usd + one.left_usd == one.usd
        # Once of the whole: rounded at every row, many small rows drift from the rate.
        share = one.covers_usd * rates[int(one.name[1:])] / 100
        assert abs(one.indirect_usd - share) <= Decimal("0.005")
        assert one.left_usd >= 0
