"""Cost against time as text: it fits a small terminal and names what it draws."""

import pytest
from answers import make_estimate, make_job, make_offer, make_plan, make_run

from gpuplan.api.pareto import Frontier
from gpuplan.cli.render.plans.pareto import render_pareto
from gpuplan.planner.plan.answer.answer_parts import Recommended
from gpuplan.planner.plan.answer.estimate import Estimate
from gpuplan.planner.plan.plan import Plan


def plan(usd: float, hours: float, *, nodes: int = 1) -> Plan:
    run = make_run(hours=hours, usd=usd)
    job = make_job(run).model_copy(
        update={"hours": hours, "hours_low": hours * 0.9, "hours_high": hours * 1.1, "usd": usd}
    )
    offer = make_offer(usd_per_hour=usd / hours)
    layout = f"fsdp{8 * nodes}"
    made = make_plan(layout=layout, nodes=nodes, run=run, offer=offer)
    return made.model_copy(update={"whole_job": job})


def answered(plans: tuple[Plan, ...], best: Plan) -> Estimate:
    found = Recommended(id=best.id, position=1, reason="", gap_to_cheapest=0.0)
    return make_estimate(*plans, recommended=found)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_it_fits_twenty_four_lines_of_a_hundred_columns(width: int) -> None:
    plans = tuple(plan(10.0 + n, 100.0 / (n + 1)) for n in range(30))
    scaling = tuple(plan(20.0 * n, 50.0 / n, nodes=n) for n in (1, 2, 4, 8, 16, 32, 64))
    found = Frontier(plans=plans, best=plans[:4], scaling=scaling)
    lines = render_pareto(found, answered(plans, plans[2]), width=width)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= min(width, 100)


def test_the_cheapest_is_at_the_bottom_and_the_fastest_at_the_left() -> None:
    cheap, fast = plan(10.0, 100.0), plan(40.0, 10.0)
    found = Frontier(plans=(cheap, fast), best=(cheap, fast), scaling=())
    picture = render_pareto(found, answered((cheap, fast), cheap), width=80)[2:13]
    assert picture[0].partition("│")[2].startswith("●")
    assert picture[-1].rstrip().endswith("★")
    assert picture[0].startswith("     $40 ")
    assert "8 × A100-40GB-SXM" in picture[-1]


def test_scaling_says_what_a_node_keeps_of_its_rate() -> None:
    one, two = plan(10.0, 10.0), plan(12.0, 6.0, nodes=2)
    two = two.model_copy(update={"samples_per_s": one.samples_per_s * 1.5})
    found = Frontier(plans=(one, two), best=(one, two), scaling=(one, two))
    lines = render_pareto(found, answered((one, two), one), width=100)
    assert lines[-2].endswith("100 %") and lines[-1].endswith("75 %")
    assert "16 × A100-40GB-SXM" in lines[-1]


@pytest.mark.parametrize("width", [72, 80, 90, 100])
def test_nothing_is_cut_where_the_terminal_is_narrow(width: int) -> None:
    plans = tuple(plan(10.0 * n, 50.0 / n, nodes=n) for n in (1, 2, 4))
    found = Frontier(plans=plans, best=plans, scaling=plans)
    lines = render_pareto(found, answered(plans, plans[0]), width=width)
    assert not any("…" in line for line in lines[1:])
    assert lines[-1].endswith(" %")
    assert any("● " in line and "★ recommended" in line for line in lines)


def test_one_plan_alone_and_none_at_all_are_drawn_too() -> None:
    only = plan(10.0, 10.0)
    found = Frontier(plans=(only,), best=(only,), scaling=())
    assert any("★" in line for line in render_pareto(found, answered((only,), only), width=80)[2:])
    nothing = Frontier(plans=(), best=(), scaling=())
    assert render_pareto(nothing, make_estimate(), width=80)[-1] == "No plan is feasible."
    unpriced = make_estimate(make_plan(run=make_run(usd=None, usd_low=None, usd_high=None)))
    assert render_pareto(nothing, unpriced, width=80)[-1].startswith("No plan has a known price")


def test_the_question_is_whole_on_a_narrow_terminal() -> None:
    plans = (plan(10.0, 100.0), plan(40.0, 10.0))
    found = Frontier(plans=plans, best=plans, scaling=())
    answer = answered(plans, plans[0])
    width = len(" · ".join(answer.asked_text)) - 3
    lines = render_pareto(found, answer, width=width)
    head = " ".join(lines[: next(i for i, one in enumerate(lines) if one.startswith("cost "))])
    assert "…" not in head
    assert all(words in head for words in answer.asked_text)


def test_the_axes_have_round_amounts_without_exponents() -> None:
    plans = (plan(184_592.0, 8_000.0), plan(805_744.0, 26_000.0), plan(200_000.0, 70.0))
    found = Frontier(plans=plans, best=plans, scaling=())
    picture = "\n".join(render_pareto(found, answered(plans, plans[2]), width=100))
    assert "$185,000 │" in picture and "$806,000 │" in picture
    assert "1,083 days" in picture and "e+" not in picture
