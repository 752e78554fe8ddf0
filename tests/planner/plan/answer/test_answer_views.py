"""An answer in Python and in notebooks: rows, a DataFrame, HTML and short texts."""

import sys
import types
from typing import Any

import pytest
from answers import make_estimate, make_offer, make_plan, make_ranked_estimate, make_run

from gpuplan.catalog.errors import UsageError
from gpuplan.planner.plan.answer.answer_parts import Recommended
from gpuplan.planner.plan.answer.estimate import Estimate


def recommended_estimate(**changes: Any) -> Estimate:
    plans = [make_plan(n, run=make_run(), **changes) for n in range(1, 13)]
    best = Recommended(id=plans[0].id, position=1, reason="the cheapest", gap_to_cheapest=0.0)
    return make_estimate(*plans, recommended=best)


def test_a_row_has_the_values_of_the_json_by_path() -> None:
    answer = make_ranked_estimate()
    first = answer.rows()[0]
    assert tuple(first) == answer.columns()
    assert first["step_time_s.low"] == answer.plans[0].step_time_s.low
    assert first["offer.region"] == "us-east-1"
    assert first["layout.zero_stage"] == 3
    assert first["offer.price_date"] == "2026-08-20"
    assert isinstance(first["run.cost_lines"], list)


def test_a_part_that_is_not_there_is_none_in_every_column() -> None:
    row = make_estimate(make_plan()).rows()[0]
    assert row["run.usd"] is None
    assert row["whole_job.usd"] is None


def test_an_answer_without_plans_has_no_rows_and_all_columns() -> None:
    answer = make_estimate()
    assert answer.rows() == []
    assert "whole_job.usd" in answer.columns()


def test_a_frame_is_made_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def data_frame(rows: object, columns: object) -> tuple[object, object]:
        return rows, columns

    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=data_frame))
    answer = make_ranked_estimate()
    assert answer.to_frame() == (answer.rows(), list(answer.columns()))


def test_a_frame_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pip install pandas"):
        make_ranked_estimate().to_frame()


def test_prices_of_ones_own_without_a_date_have_not_that_of_the_catalogue() -> None:
    own = make_offer(price_basis="user", price_date=None)
    answer = make_estimate(make_plan(offer=own), prices=None)
    assert answer.limits_text[-1] == "your own prices, without a date"


def test_a_plan_is_one_line() -> None:
    plan = make_plan(run=make_run())
    assert str(plan) == (
        f"Plan {plan.id}: aws 1 × p4d.24xlarge us-east-1 (8 × A100-40GB-SXM), 5.8–7.6 days,"
        " $3,100–4,000, fsdp8 mb4 ga2 bf16-amp"
    )
    assert repr(plan) == f"<{plan}>"
    assert "159k tokens/s" in str(make_plan())


def test_an_estimate_is_two_lines() -> None:
    answer = recommended_estimate()
    first, second = str(answer).splitlines()
    assert first == "Estimate of gpt2 · 124M parameters: 12 plans"
    assert second == f"recommended: {answer.plans[0]}"
    assert len(repr(answer)) < 300
    assert str(make_estimate()) == "Estimate of gpt2 · 124M parameters: 0 plans"


def test_a_notebook_shows_the_question_the_recommended_plan_and_ten_rows() -> None:
    answer = recommended_estimate()
    shown = answer._repr_html_()
    assert "<b>gpt2 · 124M parameters</b>" in shown
    assert "<b>Recommended</b>: aws 1 × p4d.24xlarge" in shown
    assert shown.count("<tr>") == 1 + 10
    assert "2 more in .plans" in shown


def test_what_a_notebook_shows_is_escaped() -> None:
    answer = recommended_estimate(offer=make_offer(instance_type="<script>alert(1)</script>"))
    shown = answer._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_a_notebook_says_that_nothing_is_feasible() -> None:
    assert "No plan is feasible." in make_estimate()._repr_html_()


def test_a_step_that_moves_data_for_two_thirds_of_its_time_is_bound_by_bandwidth() -> None:
    breakdown = make_plan().breakdown_s
    step_s = make_plan().step_time_s.value
    other = {"optimizer": 0.0, "memory_bound": 0.7 * step_s}
    bound = make_plan(bandwidth_share=0.62, breakdown_s=breakdown.model_copy(update=other))
    assert bound.is_bandwidth_bound
    assert bound.bandwidth_text == "62 % of bandwidth"
    cached = bound.model_copy(update={"bandwidth_share": 1.05})
    assert cached.bandwidth_text == "the full bandwidth, caches included"
    for changed in (
        bound.model_copy(update={"bandwidth_share": None}),
        bound.model_copy(update={"offloaded": ("optimizer",)}),
        make_plan(bandwidth_share=0.62),
    ):
        assert not changed.is_bandwidth_bound
        assert changed.bandwidth_text is None
