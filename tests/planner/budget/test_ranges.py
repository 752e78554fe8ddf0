"""Ranges of a project's cost: highs are not added up, and do not cancel out either."""

from dataclasses import replace
from decimal import Decimal
from statistics import NormalDist

import numpy as np
import pytest
from answers import make_plan

from gpuplan.planner.budget.ledger import Books, ledger, total_usd
from gpuplan.planner.budget.planned import RunLine
from gpuplan.planner.budget.project.defaults import default
from gpuplan.planner.budget.ranges import DRAWS, high_factor, simulate
from gpuplan.planner.budget.sensitivity import sensitivities
from gpuplan.planner.budget.sums import months_of
from tests.support.projects import make_books, make_planned, make_project, make_run_cost

MANY = [f"e{i}" for i in range(12)]


def ranges_of(names: list[str], *, spread: float = 1.3, **fields):
    project = make_project(
        experiments={name: {"model": "a", "tokens": 1, **fields} for name in names}
    )
    books = make_books(project, **{name: make_run_cost(spread=spread) for name in names})
    rows = ledger(books)
    return simulate(books, rows, months_of(project, rows)), rows


def width(found) -> float:
    return float(found.p90_usd / found.p10_usd)


def test_one_experiment_has_the_interval_of_its_plan() -> None:
    ranges, rows = ranges_of(["a"])
    found = ranges.of_project(total_usd(rows))
    assert float(found.p90_usd) == pytest.approx(20 * 1.3, rel=0.02)
    assert float(found.p10_usd) == pytest.approx(20 / 1.3, rel=0.02)
    assert float(found.p50_usd) == pytest.approx(20, rel=0.02)


def test_many_are_surer_than_one_but_never_as_sure_as_if_they_were_independent() -> None:
    one, _ = ranges_of(["a"])
    ranges, rows = ranges_of(MANY)
    many = ranges.of_project(total_usd(rows))
    alone = width(one.of_project(Decimal(20)))
    share = default("shared_error")[0]
    independent = alone ** (1 / len(MANY) ** 0.5)
    assert independent < width(many) < alone
    # Of 12 equal experiments the shared part stays, and a twelfth of the own variance.
    left = (share + (1 - share) / len(MANY)) ** 0.5
    assert width(many) == pytest.approx(alone**left, rel=0.03)


def test_the_errors_of_two_experiments_go_together_as_much_as_is_said() -> None:
    ranges, _ = ranges_of(["a", "b"])
    logs = [np.log(ranges.by_experiment[name]) for name in ("a", "b")]
    assert np.corrcoef(*logs)[0, 1] == pytest.approx(default("shared_error")[0], abs=0.04)


def books_of_a_model(seeds: dict[str, int], *, workloads: tuple[str, ...] = ("w",)) -> Books:
    """Return experiments of so many runs of one model by one plan, or of several models."""
    project = make_project(
        experiments={
            name: {"model": "a", "tokens": 1, "runs": {"seeds": count}}
            for name, count in seeds.items()
        }
    )
    cost = make_run_cost(spread=1.3, plan=make_plan())
    planned = tuple(
        make_planned(project, name, cost, workload=workloads[i % len(workloads)])
        for i, name in enumerate(seeds)
    )
    return Books(project=project, planned=planned)


def range_of(books: Books):
    rows = ledger(books)
    return simulate(books, rows, months_of(books.project, rows)), total_usd(rows)


def test_runs_of_one_model_by_one_plan_are_as_sure_in_one_experiment_as_in_many() -> None:
    whole, usd = range_of(books_of_a_model({"a": 20}))
    parts, same_usd = range_of(books_of_a_model(dict.fromkeys(map(str, range(20)), 1)))
    assert usd == same_usd
    assert parts.of_project(usd) == whole.of_project(usd)
    assert parts.of_experiment("3", Decimal(20)) == parts.of_experiment("7", Decimal(20))


def test_runs_of_another_model_have_an_error_of_their_own() -> None:
    one, usd = range_of(books_of_a_model({"a": 1, "b": 1}))
    two, _ = range_of(books_of_a_model({"a": 1, "b": 1}, workloads=("w", "v")))
    assert width(two.of_project(usd)) < width(one.of_project(usd))


def test_what_runs_of_one_model_alone_move_is_said_of_all_of_them() -> None:
    books = books_of_a_model({"a": 1, "b": 1, "c": 1}, workloads=("w", "w", "v"))
    found = {one.name: one for one in sensitivities(books, ledger(books))}
    assert "how fast a and 1 more of its model and plan train" in found
    alone, both = found["how fast c alone trains"], found[next(n for n in found if "1 more" in n)]
    assert both.swing_usd == pytest.approx(2 * alone.swing_usd, abs=Decimal("0.02"))


def test_eighty_percent_of_the_draws_lie_in_the_range() -> None:
    ranges, rows = ranges_of(["a", "b"])
    found = ranges.of_project(total_usd(rows))
    draws = sum(ranges.by_experiment.values())
    inside = (draws >= float(found.p10_usd)) & (draws <= float(found.p90_usd))
    assert float(np.mean(inside)) == pytest.approx(0.8, abs=0.01)


def test_many_tiny_runs_are_as_uncertain_as_one_and_not_as_their_cents() -> None:
    """A run of a third of a cent: its interval in cents is 0 to 1, its hours are known to 20 %."""
    tiny = {"hours": 0.1, "usd_per_hour": "0.03", "spread": 1.2}
    project = make_project(experiments={"a": {"model": "a", "tokens": 1, "runs": {"seeds": 100}}})
    for ends in (("0.00", "0.00", "0.01"), ("0.00", "0.01", "0.01"), ("0.01", "0.01", "0.02")):
        usd_low, usd, usd_high = map(Decimal, ends)
        cost = make_run_cost(**tiny, usd_low=usd_low, usd=usd, usd_high=usd_high)
        books = make_books(project, a=cost)
        rows = ledger(books)
        found = simulate(books, rows, months_of(project, rows)).of_experiment("a", total_usd(rows))
        likely = 100 * 0.1 * 0.03
        assert float(found.p90_usd) == pytest.approx(1.2 * likely, abs=0.011)
        assert float(found.p10_usd) == pytest.approx(likely / 1.2, abs=0.011)


def test_what_is_billed_by_the_hour_has_the_spread_of_its_dollars() -> None:
    cost = make_run_cost(spread=1.3, usd_low=Decimal(20), usd_high=Decimal(20))
    assert high_factor(cost) == pytest.approx((1.0, 1.0), abs=0.002)


def test_the_same_seed_gives_the_same_ranges_and_another_does_not() -> None:
    first, rows = ranges_of(["a"])
    again, _ = ranges_of(["a"])
    assert first.of_project(total_usd(rows)) == again.of_project(total_usd(rows))
    project = make_project()
    books = make_books(project, a=make_run_cost(spread=1.3))
    entries = ledger(books)
    other = simulate(books, entries, months_of(project, entries), seed=7)
    assert other.of_project(total_usd(rows)) != first.of_project(total_usd(rows))


def test_what_is_bought_by_the_month_has_no_range() -> None:
    project = make_project(extras=[{"name": "licence", "usd": 100}])
    books = make_books(project)
    rows = ledger(books)
    found = simulate(books, rows, months_of(project, rows)).of_project(total_usd(rows))
    assert found.p10_usd == found.p50_usd == found.p90_usd == found.usd == Decimal("620.00")


def test_failed_runs_are_drawn_with_their_own_chance() -> None:
    ranges, rows = ranges_of(["a"], spread=1.0, retry={"failed_share": "30%"}, runs={"seeds": 4})
    again = float(total_usd(row for row in rows if row.kind == "retries"))
    drawn = ranges.by_experiment["a"] - float(total_usd(rows)) + again
    assert drawn.min() == pytest.approx(0, abs=0.01)
    assert drawn.mean() == pytest.approx(again, rel=0.06)
    # The variance of so many failures before n successes is n f / (1 - f)²; its mean n f / (1 - f).
    assert drawn.std() / again == pytest.approx(1 / (4 * 0.3) ** 0.5, rel=0.06)


def test_the_tax_on_disks_has_no_range_and_that_on_failed_runs_has_theirs() -> None:
    """$20 of machines, $10 of disks, 20 % of tax: $24 move with the time, $12 do not."""
    cost = make_run_cost(spread=1.5, tax="0.2")
    disks = RunLine(kind="storage", name="disks", quantity=1, unit="run", unit_usd=Decimal(10))
    books = make_books(make_project(), a=replace(cost, lines=(*cost.lines, disks)))
    rows = ledger(books)
    found = simulate(books, rows, months_of(books.project, rows)).of_project(total_usd(rows))
    assert found.usd == Decimal("36.00")
    assert float(found.p90_usd) == pytest.approx(12 + 24 * 1.5, rel=0.02)
    assert float(found.p10_usd) == pytest.approx(12 + 24 / 1.5, rel=0.02)


def test_what_is_spent_until_a_month_only_grows_and_ends_at_the_total() -> None:
    project = make_project(
        extras=[{"name": "licence", "usd": 1}],
        experiments={
            "a": {"model": "a", "tokens": 1},
            "b": {"model": "b", "tokens": 1, "start": "2027-04"},
        },
    )
    costs = {name: make_run_cost(spread=1.2) for name in ("a", "b")}
    books = make_books(project, **costs)
    rows = ledger(books)
    ranges = simulate(books, rows, months_of(project, rows))
    assert ranges.until_month.shape == (DRAWS, 6)
    assert (np.diff(ranges.until_month, axis=1) >= 0).all()
    whole = sum(ranges.by_experiment.values()) + ranges.fixed_usd
    assert ranges.until_month[:, -1] == pytest.approx(whole)


def test_the_ends_of_a_normal_distribution_are_those_that_the_sensitivities_take() -> None:
    assert NormalDist().inv_cdf(0.9) == pytest.approx(1.2816, abs=1e-4)
