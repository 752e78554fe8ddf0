"""The table of `gpuplan estimate`: its rows, marks and first and last lines."""

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from answers import (
    make_estimate,
    make_plan,
    make_ranked_estimate,
    make_run,
    make_unworked_estimate,
)

from gpuplan.cli.render.plans.estimate import SCREEN_LINES, render_estimate
from gpuplan.cli.render.plans.explain import render_plan
from gpuplan.cli.render.plans.markdown import render_markdown
from gpuplan.cli.render.text.columns import to_text
from gpuplan.planner.plan.answer.answer_parts import CompileGain, Headlines, NearMiss, Recommended
from gpuplan.planner.plan.answer.estimate import Estimate
from gpuplan.planner.plan.plan import Plan

GOLDEN = Path(__file__).parent / "golden"


Golden = Callable[[Path, str], None]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_table_with_an_amount_of_work(golden: Golden, width: int) -> None:
    lines = render_estimate(make_ranked_estimate(), model="my model.py", width=width)
    assert max(line.cell_len for line in lines) <= width
    golden(GOLDEN / f"estimate-{width}.txt", to_text(lines, colour=False))


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_without_an_amount_of_work(golden: Golden, width: int) -> None:
    lines = render_estimate(make_unworked_estimate(), model="model.py", width=width)
    assert max(line.cell_len for line in lines) <= width
    golden(GOLDEN / f"estimate-unworked-{width}.txt", to_text(lines, colour=False))


def test_the_table_without_tokens_counts_samples() -> None:
    plan = make_plan(tokens_per_s=None, usd_per_million_tokens=None)
    lines = render_estimate(make_estimate(plan), model="model.py", width=120)
    text = to_text(lines, colour=False)
    assert "$ per 1M samples" in text
    assert "tokens" not in text.replace("--tokens", "")


@pytest.mark.parametrize(("width", "there"), [(80, False), (100, True), (120, True)])
def test_the_last_line_names_pareto_where_one_line_has_room(width: int, there: bool) -> None:
    def last(answer: Estimate) -> str:
        return render_estimate(answer, model="model.py", width=width)[-1].plain

    assert last(make_ranked_estimate()).endswith("or --pareto") == there
    assert "--pareto" not in last(make_unworked_estimate()), "it needs an amount of work"


@pytest.mark.parametrize("width", [100, 120])
def test_a_cost_that_is_known_in_part_is_marked_and_the_answer_still_fits(width: int) -> None:
    answer = make_ranked_estimate()

    def bound(plan: Plan) -> Plan:
        job = plan.whole_job
        part = None if job is None else job.model_copy(update={"lower_bound": True})
        offer = plan.offer.model_copy(update={"purchase": "spot"})
        return plan.model_copy(update={"whole_job": part, "offer": offer})

    changed = answer.model_copy(update={"plans": tuple(map(bound, answer.plans))})
    lines = render_estimate(changed, model="model.py", width=width)
    assert max(line.cell_len for line in lines) <= width and len(lines) <= SCREEN_LINES
    text = to_text(lines, colour=False)
    assert "≥: a price beside it is not known" in " ".join(text.split())
    assert "not in these sums: storage, egress" in text
    priced = [plan for plan in changed.plans if plan.job is not None and plan.job.usd is not None]
    marked = len(re.findall(r"≥ ?\$", text))
    assert marked >= len(priced) > 3 and not re.search(r"≥ ?\?", text)
    assert "≥" not in to_text(render_estimate(answer, model="m.py", width=width), colour=False)


def test_a_step_that_memory_bounds_shows_bandwidth_in_place_of_mfu() -> None:
    answer = make_ranked_estimate()

    def bound(plan: Plan) -> Plan:
        moving = plan.breakdown_s.model_copy(update={"memory_bound": plan.step_time_s.value})
        return plan.model_copy(update={"bandwidth_share": 0.62, "breakdown_s": moving})

    changed = answer.model_copy(update={"plans": tuple(map(bound, answer.plans))})
    text = to_text(render_estimate(changed, model="model.py", width=200), colour=False)
    assert "62 % of bandwidth" in text and "62 % bw" in text
    assert "bw: share of memory bandwidth" in text and "41 %" not in text
    shown = to_text(render_plan(changed.plans[0], changed, sources={}, width=100), colour=False)
    assert "bound by memory traffic: 62 % of bandwidth" in shown and "MFU" not in shown
    usual = to_text(render_estimate(answer, model="model.py", width=200), colour=False)
    assert "bandwidth" not in usual


@pytest.mark.parametrize("width", [120, 60])
def test_an_unknown_spot_price_and_no_spot_are_told_apart_where_there_is_the_column(
    width: int,
) -> None:
    answer = make_ranked_estimate()
    first, second, *rest = answer.plans

    def without(plan: Plan, status: str) -> Plan:
        changes = {"spot_usd_per_hour": None, "spot_status": status}
        offer = plan.offer.model_copy(update=changes)
        job = plan.whole_job and plan.whole_job.model_copy(update={"spot_usd": None})
        run = plan.run and plan.run.model_copy(update={"spot_usd": None})
        return plan.model_copy(update={"offer": offer, "whole_job": job, "run": run})

    plans = (without(first, "unknown"), without(second, "not sold"), *rest)
    lines = render_estimate(
        answer.model_copy(update={"plans": plans}), model="model.py", width=width
    )
    text = " ".join(to_text(lines, colour=False).split())
    assert ("? price not known" in text) == (width == 120)
    assert ("– not sold as spot" in text) == (width == 120)  # noqa: RUF001
    marked = render_markdown(answer.model_copy(update={"plans": plans}))
    assert "? price not known; – not sold as spot" in marked  # noqa: RUF001


@pytest.mark.parametrize("make", [make_ranked_estimate, make_unworked_estimate])
def test_where_all_machines_are_spot_their_price_stands_once(make) -> None:
    def headings(answer: Estimate) -> str:
        return to_text(render_estimate(answer, model="model.py", width=160), colour=False)

    answer = make()
    assert "spot" in headings(answer)
    bought = [
        one.model_copy(update={"purchase": "spot"}) for one in (p.offer for p in answer.plans)
    ]
    spot = [
        plan.model_copy(update={"offer": offer})
        for plan, offer in zip(answer.plans, bought, strict=True)
    ]
    assert "  spot" not in headings(answer.model_copy(update={"plans": tuple(spot)}))
    some = answer.model_copy(update={"plans": (spot[0], *answer.plans[1:])})
    assert "spot" in headings(some)


def test_an_answer_without_a_plan_says_why(golden: Golden) -> None:
    lines = render_estimate(make_estimate(), model="model.py", width=100)
    golden(GOLDEN / "estimate-none.txt", to_text(lines, colour=False))


def first_and_last(answer: Estimate) -> tuple[str, str]:
    """Return the lines before the table, and the last."""
    lines = [line.plain for line in render_estimate(answer, model="model.py", width=200)]
    table = next(i for i, line in enumerate(lines) if line.lstrip().startswith("#"))
    return "\n".join(lines[:table]), lines[-1]


def test_a_plan_that_gpuplan_cannot_run_is_not_offered_to_launch() -> None:
    answer = make_ranked_estimate()
    assert f"gpuplan launch {answer.plans[1].id}" in first_and_last(answer)[1]
    best = answer.plans[1].model_copy(update={"runnable": False})
    plans = (answer.plans[0], best, *answer.plans[2:])
    changed = answer.model_copy(update={"plans": plans})
    assert "launch" not in first_and_last(changed)[1]
    assert f"gpuplan show {best.id}" in first_and_last(changed)[1]
    miss = NearMiss(
        id=plans[0].id, reason="has a risk: give --runnable --x 3", options="--runnable --x 3"
    )
    head, last = first_and_last(changed.model_copy(update={"near_miss": miss}))
    assert "Nearest that runs   aws 1 × p4d.24xlarge" in head and "has a risk" in head
    assert last.endswith("the same with --runnable --x 3") and "launch" not in last


def test_what_compiling_would_gain_stands_below_the_recommended_plan() -> None:
    answer = make_ranked_estimate()
    assert "--compile" not in first_and_last(answer)[0] and answer.recommended is not None
    gain = CompileGain(times_as_fast=2.13, hours=52.0, usd=Decimal("1663.38"))
    best = answer.recommended.model_copy(update={"with_compile": gain})
    head, _ = first_and_last(answer.model_copy(update={"recommended": best}))
    words = "with torch.compile (--compile): about 2.1 times as fast, $1,700"
    assert words in head
    page = render_markdown(answer.model_copy(update={"recommended": best}))
    assert f"{answer.recommended.reason}; {words}.\n" in page
    unpriced = gain.model_copy(update={"usd": None})
    best = best.model_copy(update={"with_compile": unpriced})
    head, _ = first_and_last(answer.model_copy(update={"recommended": best}))
    assert "about 2.1 times as fast\n" in f"{head}\n"


def test_where_nothing_is_recommended_the_first_lines_and_the_last_say_why() -> None:
    answer = make_ranked_estimate()
    reason = "has a 2.5 % chance of running out of memory: give --max-oom-risk 0.03"
    miss = NearMiss(id=answer.plans[2].id, reason=reason, options="--max-oom-risk 0.03")
    none = {"recommended": None, "headlines": Headlines(), "near_miss": miss}
    changed = answer.model_copy(update=none)
    head, last = first_and_last(changed)
    assert "Not recommended     gcp 1 × g2-standard-8" in head and reason in head
    assert "launch" not in last and "the same with --max-oom-risk 0.03" in last
    assert f"Nothing is recommended: the nearest plan, {answer.plans[2].place}" in (
        render_markdown(changed)
    )
    assert reason in changed._repr_html_()


def test_a_chance_over_the_limit_does_not_read_as_the_limit() -> None:
    answer = make_ranked_estimate()
    first = answer.plans[0].model_copy(update={"p_oom": 0.0243})
    changed = answer.model_copy(update={"plans": (first, *answer.plans[1:])})
    text = to_text(render_estimate(changed, model="model.py", width=120), colour=False)
    assert "2.5 %" in text and "12 %" in text


def test_where_memory_is_not_the_reason_no_larger_device_is_proposed() -> None:
    answer = make_estimate(nearest_miss="191 plans fit, and gpuplan runs none of them.")
    text = to_text(render_estimate(answer, model="model.py", width=100), colour=False)
    assert "runs none of them" in text and "gpuplan fits" not in text


def test_a_long_name_of_a_recommended_machine_stays_on_the_screen() -> None:
    answer = make_ranked_estimate()
    assert answer.best is not None
    long = answer.best.offer.model_copy(
        update={"instance_type": "gpu-b200-sxm_8gpu-160vcpu-1792gb", "region": "us-central1"}
    )
    plans = tuple(
        one.model_copy(update={"offer": long}) if one is answer.best else one
        for one in answer.plans
    )
    changed = answer.model_copy(update={"plans": plans})
    lines = [one.plain for one in render_estimate(changed, model="model.py", width=80)]
    at = next(i for i, line in enumerate(lines) if line.startswith("Recommended"))
    assert lines[at].endswith("us-central1")
    assert lines[at + 1].strip().startswith("(8 × H100-80GB-SXM)")
    assert max(map(len, lines[at : at + 3])) <= 80


def test_how_much_each_plan_trains_stands_in_its_row() -> None:
    run = make_run(trained_samples=6e7, trained_tokens=6.12e10, limited_by="budget")
    plan = make_plan(run=run)
    best = Recommended(id=plan.id, position=1, reason="trains the most", gap_to_cheapest=0.0)
    answer = make_estimate(plan, recommended=best)
    text = to_text(render_estimate(answer, model="gpt2.py", width=120), colour=False)
    assert "trains about 61.2B tokens   in 5.8–7.6 days" in text
    assert "61.2B tokens" in text.split("trains  ")[-1]
    assert "61.2B tokens" in render_markdown(answer)
    assert "61.2B tokens" in str(plan)
    assert "<th" in answer._repr_html_() and "61.2B tokens" in answer._repr_html_()
