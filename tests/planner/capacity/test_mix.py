"""The mix of terms of all lengths is the cheapest of all mixes that there are."""

import sys
import time
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.planner.capacity.commitments import Prices, mixes, on_demand_usd
from gpuplan.planner.capacity.mix import Mixed, cheapest_mix
from gpuplan.planner.capacity.place import Placed

YEAR_H = 8760
QUARTER_H = YEAR_H / 4
SHORT, LONG = 2, 3
"""Quarters of the terms that are drawn: together they make begins that neither alone has."""
LAST = 5
"""Quarters of a drawn project."""
BEGINS = 2 * LAST
"""Moments at which a commitment is tried, half a quarter apart: between all changes too."""


def use(begin_h: float, end_h: float) -> Placed:
    return Placed(begin_h=begin_h, end_h=end_h, at_once=1, accelerators=8)


def prices(*terms: tuple[float, float]) -> Prices:
    return Prices(
        on_demand_usd=Decimal(10),
        terms=tuple((Decimal(str(years)), Decimal(str(usd))) for years, usd in terms),
    )


def known(uses: list[Placed], priced: Prices, nodes: list[int]) -> Mixed:
    found = cheapest_mix(uses, priced, nodes)
    assert isinstance(found, Mixed)
    return found


def covering(length: int) -> list[list[int]]:
    """Return what each begin of a term covers, in halves of quarters; first that of none."""
    return [[int(at <= half < at + 2 * length) for half in range(2 * LAST)] for at in range(BEGINS)]


MATRIX = np.array([*covering(SHORT), *covering(LONG)])


def choices(most: int) -> np.ndarray:
    """Return every choice of at most so many commitments, by begin and length."""
    found = {tuple(np.zeros(len(MATRIX), dtype=int))}
    for _ in range(most):
        for one in list(found):
            for at in range(len(MATRIX)):
                found.add((*one[:at], one[at] + 1, *one[at + 1 :]))
    return np.array(sorted(found))


CHOICES = choices(4)
COVERED = CHOICES @ MATRIX


USES = st.lists(
    st.tuples(st.integers(0, LAST - 1), st.integers(1, LAST), st.integers(1, 2)),
    min_size=1,
    max_size=3,
)
PRICED = st.tuples(st.sampled_from([4.0, 6.0, 7.0, 8.5]), st.sampled_from([3.0, 5.0, 6.5, 9.0]))


@settings(deadline=None)
@given(USES, PRICED)
def test_no_four_commitments_are_cheaper(
    drawn: list[tuple[int, int, int]], usd: tuple[float, float]
) -> None:
    """At any moment, and also between those at which anything begins or ends."""
    spans = [(begin, min(LAST, begin + length), count) for begin, length, count in drawn]
    uses = [use(begin * QUARTER_H, end * QUARTER_H) for begin, end, _ in spans]
    nodes = [count for _, _, count in spans]
    found = known(uses, prices((SHORT / 4, usd[0]), (LONG / 4, usd[1])), nodes)
    used = [
        sum(count for begin, end, count in spans if 2 * begin <= half < 2 * end)
        for half in range(2 * LAST)
    ]
    lengths = np.array([SHORT * usd[0]] * BEGINS + [LONG * usd[1]] * BEGINS) * QUARTER_H
    rented = np.maximum(0, np.array(used) - COVERED).sum(axis=1) * QUARTER_H / 2 * 10
    least = float((CHOICES @ lengths + rented).min())
    if sum(one.nodes for one in found.committed) <= 4:
        assert float(found.usd) == pytest.approx(least, abs=0.01)
    assert float(found.usd) <= least + 0.01


@settings(deadline=None)
@given(USES, PRICED)
def test_it_costs_no_more_than_terms_of_one_length(
    drawn: list[tuple[int, int, int]], usd: tuple[float, float]
) -> None:
    uses = [use(begin * 3000.0, (begin + length) * 3000.0) for begin, length, _ in drawn]
    nodes = [count for _, _, count in drawn]
    priced = prices((1, usd[0]), (3, usd[1]))
    found = known(uses, priced, nodes)
    assert found.usd <= min(one.usd for one in mixes(uses, priced, nodes))
    assert found.usd <= on_demand_usd(uses, priced, nodes)


def test_what_lasts_is_committed_for_long_and_what_does_not_for_a_year() -> None:
    uses = [use(0, 3 * YEAR_H), use(5000, 5000 + YEAR_H), use(2000, 2100)]
    found = known(uses, prices((1, 7), (3, 5)), [4, 2, 1])
    assert [(one.begin_h, one.years, one.nodes) for one in found.committed] == [
        (0, 3, 4),
        (5000, 1, 2),
    ]
    assert found.usd == 3 * YEAR_H * 5 * 4 + YEAR_H * 7 * 2 + 100 * 10
    assert found.used == 1


def test_a_term_follows_one_that_has_ended() -> None:
    """Two years and a quarter: two terms of a year, and the rest by the hour."""
    found = known([use(100, 100 + 2.25 * YEAR_H)], prices((1, 6)), [1])
    years = sorted(one.begin_h for one in found.committed)
    assert len(years) == 2 and years[1] - years[0] >= YEAR_H
    assert found.usd == 2 * YEAR_H * 6 + Decimal("0.25") * YEAR_H * 10


def test_nodes_take_over_from_one_another() -> None:
    """No node alone is used for a year: the second has the first one's place as it ends."""
    uses = [use(0, YEAR_H), use(YEAR_H / 2, 1.5 * YEAR_H)]
    found = known(uses, prices((1, 9)), [1, 1])
    assert [(one.begin_h, one.nodes) for one in found.committed] == [(0, 1), (YEAR_H / 2, 1)]
    assert found.used == 1


def test_where_none_pays_none_is_committed() -> None:
    found = known([use(0, 500)], prices((1, 7), (3, 5)), [8])
    assert found.committed == () and found.used is None
    assert found.usd == 8 * 500 * 10


def test_without_scipy_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    said = cheapest_mix([use(0, 500)], prices((1, 7)), [8])
    assert isinstance(said, str) and "scipy" in said and "pip install" in said


@pytest.mark.parametrize(("runs", "years", "at_most_s"), [(200, 20, 10), (2000, 3, 20)])
def test_large_projects_are_answered_soon(runs: int, years: int, at_most_s: float) -> None:
    chance = np.random.default_rng(3)
    begins = chance.uniform(0, years * YEAR_H, runs)
    uses = [
        use(float(begin), float(begin + hours))
        for begin, hours in zip(begins, chance.uniform(20, 4000, runs), strict=True)
    ]
    nodes = [int(count) for count in chance.integers(1, 9, runs)]
    began = time.process_time()
    found = known(uses, prices((1, 7), (3, 4)), nodes)
    assert time.process_time() - began < at_most_s
    assert found.usd < min(one.usd for one in mixes(uses, prices((1, 7), (3, 4)), nodes))
