import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.plan.plan import Estimated
from gpuplan.planner.validation.errors import Observation, Verdict, percentile, prediction_errors
from gpuplan.planner.validation.null_models import FOLDS, best_constant_hfu, fold_of

HFU = st.floats(min_value=0.01, max_value=1.0)


def observe(
    name: str,
    measured: float,
    predicted: float | None,
    *,
    group: str = "a",
    ideal: float | None = None,
    configuration: str | None = None,
) -> Observation:
    estimate = (
        None
        if predicted is None
        else Estimated(value=predicted, low=predicted * 0.9, high=predicted * 1.1, basis="analytic")
    )
    return Observation(
        id=name,
        source_group=group,
        accelerator="L4",
        stack="torch-eager",
        configuration=configuration or name,
        measured_step_time_s=measured,
        predicted_step_time_s=estimate,
        ideal_step_time_s=ideal,
    )


def observe_memory(name: str, measured: float | None, verdict: Verdict) -> Observation:
    return Observation(
        id=name,
        source_group="a",
        accelerator="L4",
        stack="torch-eager",
        configuration=name,
        measured_memory_bytes=measured,
        predicted_memory_bytes=Estimated(value=1.1e9, low=1e9, high=1.2e9, basis="analytic"),
        verdict_measured=verdict,
        verdict_predicted="fits",
    )


def summary_of(answer, by, group, quantity="step_time_s"):
    (row,) = [s for s in answer.summary if (s.by, s.group, s.quantity) == (by, group, quantity)]
    return row


def test_errors_and_their_summary():
    answer = prediction_errors(
        [observe("x", 2.0, 2.2), observe("y", 1.0, 0.7), observe("z", 1.0, None)]
    )
    assert [row.error for row in answer.rows] == [
        pytest.approx(0.1),
        pytest.approx(-0.3),
        None,
    ]
    row = summary_of(answer, "source_group", "a")
    assert (row.n, row.skipped) == (2, 1)
    assert row.mape == pytest.approx(0.2)
    assert row.median == pytest.approx(0.2)
    assert row.worst == pytest.approx(-0.3)
    assert row.bias == pytest.approx(-0.1)
    assert row.p90 == pytest.approx(0.28)
    assert row.covered == 0.5
    assert row.null_best_constant is row.null_50_hfu is None


def test_a_constant_hfu_is_perfect_where_the_hfu_is_constant():
    runs = [observe(f"r{i}", 1.0 + i, 1.0, ideal=0.4 * (1.0 + i)) for i in range(8)]
    row = summary_of(prediction_errors(runs), "source_group", "a")
    assert row.null_best_constant == pytest.approx(0.0, abs=1e-12)
    assert row.null_50_hfu == pytest.approx(0.2)
    assert row.null_left_out is None


def test_the_left_out_constant_comes_from_the_other_groups_alone():
    runs = [observe(f"a{i}", 1.0, 1.0, group="a", ideal=0.5) for i in range(3)]
    runs += [observe(f"b{i}", 1.0, 1.0, group="b", ideal=0.25) for i in range(3)]
    row = summary_of(prediction_errors(runs), "source_group", "b")
    assert row.null_left_out == pytest.approx(0.5)
    assert row.null_50_hfu == pytest.approx(0.5)


def test_other_groups_weigh_the_same_however_large():
    runs = [observe(f"a{i}", 1.0, 1.0, group="a", ideal=0.5) for i in range(3)]
    runs += [observe(f"b{i}", 1.0, 1.0, group="b", ideal=0.2) for i in range(100)]
    runs += [observe("c", 1.0, 1.0, group="c", ideal=0.5)]
    row = summary_of(prediction_errors(runs), "source_group", "c")
    assert row.null_left_out == pytest.approx(0.0, abs=1e-12)


def test_repeats_of_one_configuration_cannot_teach_the_folded_constant():
    repeats = [observe(f"r{i}", 1.0, 1.0, ideal=0.3, configuration="same") for i in range(4)]
    others = [observe(f"o{i}", 1.0, 1.0, group="b", ideal=0.6) for i in range(4)]
    row = summary_of(prediction_errors(repeats + others), "source_group", "a")
    assert row.null_best_constant == row.null_left_out == pytest.approx(0.5)


def test_every_verdict_that_is_counted_is_on_one_row():
    """A run with a step time and no memory was counted, and no row said so."""
    ran = replace(
        observe("ran", 1.0, 1.0), verdict_measured="fits", verdict_predicted="out_of_memory"
    )
    both = replace(ran, measured_memory_bytes=1e9)
    answer = prediction_errors([ran, both, observe_memory("oom", None, "out_of_memory")])
    said = [row.quantity for row in answer.rows if row.verdict_measured is not None]
    assert said == ["step_time_s", "peak_memory_bytes", "peak_memory_bytes"]
    assert answer.verdicts.n == len(said)


def test_memory_has_no_null_model_and_verdicts_are_counted():
    answer = prediction_errors(
        [observe_memory("ran", 1e9, "fits"), observe_memory("oom", None, "out_of_memory")]
    )
    ran, oom = answer.rows
    assert ran.error == pytest.approx(0.1)
    assert (oom.measured, oom.error, oom.verdict_measured) == (None, None, "out_of_memory")
    row = summary_of(answer, "stack", "torch-eager", "peak_memory_bytes")
    assert (row.n, row.null_50_hfu, row.null_best_constant) == (1, None, None)
    verdicts = answer.verdicts
    assert (verdicts.n, verdicts.right, verdicts.missed_out_of_memory) == (2, 1, 1)


def test_the_macro_mean_is_over_groups_not_rows():
    runs = [observe(f"a{i}", 1.0, 1.1, group="a") for i in range(99)]
    runs.append(observe("b", 1.0, 1.3, group="b"))
    assert prediction_errors(runs).macro["step_time_s"] == pytest.approx(0.2)


@given(st.lists(HFU, min_size=1, max_size=30), st.floats(min_value=0.005, max_value=2.0))
def test_no_constant_beats_the_best_constant(hfus, other):
    best = best_constant_hfu(hfus)
    assert best is not None

    def mape(constant: float) -> float:
        return math.fsum(abs(hfu / constant - 1) for hfu in hfus) / len(hfus)

    assert mape(best) <= mape(other) + 1e-9


@given(
    st.lists(st.tuples(HFU, st.integers(1, 4)), min_size=1, max_size=10),
)
def test_weights_count_as_repeats(weighted):
    hfus, weights = zip(*weighted, strict=True)
    repeated = [hfu for hfu, weight in weighted for _ in range(weight)]
    best = best_constant_hfu(hfus, weights)
    assert best is not None

    def mape(constant: float) -> float:
        return math.fsum(abs(hfu / constant - 1) for hfu in repeated)

    unweighted = best_constant_hfu(repeated)
    assert unweighted is not None
    assert mape(best) == pytest.approx(mape(unweighted))


def test_no_run_no_constant():
    assert best_constant_hfu([]) is None


@given(st.text())
def test_folds_are_in_range_and_stable(text):
    assert fold_of(text) == fold_of(text) < FOLDS


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_percentiles_are_ordered(values):
    assert percentile(values, 0) == min(values)
    assert percentile(values, 1) == max(values)
    assert percentile(values, 0.5) <= percentile(values, 0.9)


def test_the_best_constant_of_a_held_out_source_is_that_of_the_others():
    runs = [
        *(observe(f"a{i}", 2.0, 2.0, group="a", ideal=1.0) for i in range(3)),
        observe("b", 4.0, 4.0, group="b", ideal=1.0),
    ]
    held = prediction_errors(runs, hold_out="source")
    assert held.hold_out == "source"
    # The constant 1/4 of b predicts 4 s where a took 2; the 1/2 of a predicts 2 s where b took 4.
    assert summary_of(held, "source_group", "a").null_best_constant == pytest.approx(1.0)
    assert summary_of(held, "source_group", "b").null_best_constant == pytest.approx(0.5)
    assert summary_of(held, "accelerator", "L4").null_best_constant == pytest.approx(0.875)


def test_without_other_accelerators_a_held_out_one_has_no_constant():
    held = prediction_errors([observe("x", 2.0, 2.0, ideal=1.0)], hold_out="accelerator")
    assert summary_of(held, "source_group", "a").null_best_constant is None


def test_the_width_of_intervals_is_their_mean_factor():
    (row,) = [s for s in prediction_errors([observe("x", 2.0, 2.0)]).summary if s.by == "stack"]
    assert row.width == pytest.approx(math.sqrt(1.1 / 0.9) - 1)
