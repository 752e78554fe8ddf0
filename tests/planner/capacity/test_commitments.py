"""The mix of commitments and machines on demand is the cheapest that there is."""

from decimal import Decimal

import pytest
from capacity_jobs import job
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.capacity.commitments import Prices, machine_jobs, mixes, on_demand_usd
from gpuplan.planner.capacity.place import Placed

YEAR_H = 8760
PRICES = Prices(
    on_demand_usd=Decimal(10), terms=((Decimal(3), Decimal(4)), (Decimal(1), Decimal(7)))
)


def use(begin_h: float, end_h: float) -> Placed:
    return Placed(begin_h=begin_h, end_h=end_h, at_once=1, accelerators=8)


USES = st.lists(
    st.tuples(st.integers(0, 15000), st.integers(1, 9000), st.integers(1, 4)),
    min_size=1,
    max_size=5,
)


@given(USES)
def test_no_number_of_nodes_is_cheaper(drawn: list[tuple[int, int, int]]) -> None:
    uses = [use(begin, begin + hours) for begin, hours, _ in drawn]
    nodes = [count for _, _, count in drawn]
    found = {mix.term_years: mix for mix in mixes(uses, PRICES, nodes)}
    for years, usd in PRICES.terms:
        assert float(found[years].usd) == pytest.approx(
            least_usd(uses, nodes, float(years) * YEAR_H, float(usd)), abs=0.01
        )
        assert found[years].usd <= on_demand_usd(uses, PRICES, nodes)
        assert found[years].break_even == usd / 10
    assert [mix.usd for mix in mixes(uses, PRICES, nodes)] == sorted(m.usd for m in found.values())


def least_usd(uses: list[Placed], nodes: list[int], term_h: float, usd: float) -> float:
    """Return the least over all numbers of committed nodes, term by term, counted hour by hour."""
    total, begin_h = 0.0, 0.0
    moments = sorted({moment for one in uses for moment in (one.begin_h, one.end_h)})
    while begin_h < max(one.end_h for one in uses):
        end_h = begin_h + term_h
        cuts = sorted({begin_h, end_h, *(m for m in moments if begin_h < m < end_h)})
        busy = [
            (
                b - a,
                sum(n for one, n in zip(uses, nodes, strict=True) if one.begin_h <= a < one.end_h),
            )
            for a, b in zip(cuts, cuts[1:], strict=False)
        ]
        total += min(
            count * term_h * usd + sum(10 * hours * max(0, used - count) for hours, used in busy)
            for count in range(sum(nodes) + 1)
        )
        begin_h = end_h
    return total


def test_what_is_always_used_is_committed_and_a_peak_is_not() -> None:
    year, _ = mixes([use(0, YEAR_H), use(1000, 2000)], PRICES, [4, 8])
    assert (year.term_years, year.committed, year.used) == (1, ((0.0, 4),), 1)
    assert year.usd == 4 * YEAR_H * 7 + 8 * 1000 * 10


def test_where_none_pays_it_says_how_much_is_used() -> None:
    for mix in mixes([use(0, 876)], PRICES, [2]):
        assert mix.committed == () and mix.usd == 2 * 876 * 10
        assert mix.used == pytest.approx(0.1 / float(mix.term_years))


def test_what_is_not_on_demand_is_not_counted() -> None:
    jobs = [job(machine="aws x"), job(), job(machine="aws x"), job(0, machine="aws y")]
    placed = [use(0, one.run_h) for one in jobs]
    assert machine_jobs(jobs, placed) == {"aws x": [0, 2]}
