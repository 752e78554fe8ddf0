"""The table of plans on narrow terminals: what gets shorter, what leaves, and in which order."""

from decimal import Decimal
from typing import Any

import pytest
from answers import make_estimate, make_offer, make_plan, make_ranked_estimate, make_run

from gpuplan.cli.render.plans.estimate import note_lines, render_estimate, room_beside
from gpuplan.cli.render.plans.plan_table import PlanTable
from gpuplan.cli.render.plans.short_cells import (
    short_cost,
    short_devices,
    short_place,
    short_place_anywhere,
    short_spot,
    short_time,
)
from gpuplan.planner.plan.answer.answer_parts import Headlines, Recommended
from gpuplan.planner.plan.answer.estimate import Estimate

LONG = "gpu-h200-sxm_1gpu-16vcpu-200gb"
CORE = ["#", "rent", "on", "time", "cost", "spot", "tokens/s"]


def answer_of(count: int = 1, **offer: Any) -> Estimate:
    plans = [
        make_plan(
            n,
            run=make_run(),
            offer=make_offer(**offer),
            tie_with_previous=n > 1,
            grad_accum=n,
        )
        for n in range(1, count + 1)
    ]
    return make_estimate(*plans)


@pytest.mark.parametrize(
    ("provider", "instance", "place", "anywhere"),
    [
        ("azure", "Standard_ND96asr_v4", "azure 1×ND96asr_v4 east", "azure 1×ND96asr_v4"),
        ("verda", "verda-h100-sxm-on-demand", "verda 1×h100-sxm east", "verda 1×h100-sxm"),
        ("aws", "p4d.24xlarge", "aws 1×p4d.24xlarge east", "aws 1×p4d.24xlarge"),
    ],
)
def test_short_places(provider: str, instance: str, place: str, anywhere: str) -> None:
    offer = make_offer(provider=provider, instance_type=instance, region="east", zone=None)
    plan = make_plan(offer=offer)
    assert short_place(plan) == place
    assert short_place_anywhere(plan) == anywhere
    bought = plan.model_copy(update={"offer": offer.model_copy(update={"purchase": "spot"})})
    assert short_place(bought) == f"{place} spot"


@pytest.mark.parametrize("width", [80, 100])
def test_rows_of_several_regions_keep_them_on_a_narrow_screen(width: int) -> None:
    def rows(*regions: str) -> str:
        plans = [
            make_plan(
                n,
                run=make_run(),
                offer=make_offer(provider="nebius", instance_type=LONG, region=region, zone=None),
            )
            for n, region in enumerate(regions, start=1)
        ]
        table = PlanTable.of(make_estimate(*plans), width)
        lines = [row.plain for row in table.rows(plans)]
        assert max(map(len, lines)) <= width
        return "\n".join(lines)

    both = rows("eu-north1", "us-central1")
    assert "nebius eu-north1 1×gpu-h200" in both and "nebius us-central1 1×gpu" in both  # noqa: RUF001
    assert "eu-north1" not in rows("eu-north1", "eu-north1"), "the lines above name it"


def test_short_cells_say_the_same_numbers() -> None:
    plan = make_plan(run=make_run())
    assert short_devices(plan) == "8×A100-40GB"  # noqa: RUF001
    assert short_time(plan) == plan.hours_text.replace("days", "d")
    assert short_cost(plan) == plan.cost_text
    assert short_spot(plan) == "$1,550"
    for usd, text in ((423_000, "$420k"), (1_300_000, "$1.3M")):
        job = plan.whole_job and plan.whole_job.model_copy(update={"spot_usd": Decimal(usd)})
        assert short_spot(plan.model_copy(update={"whole_job": job})) == text


def test_words_get_shorter_before_a_column_leaves_that_people_decide_by() -> None:
    answer = answer_of(instance_type=LONG, region="eu-north1", zone=None)
    table = {width: PlanTable.of(answer, width) for width in (300, 130, 110, 100, 90, 60)}
    rows = {width: next(one.rows(answer.plans)).plain for width, one in table.items()}
    assert table[300].headings == [*CORE, "step", "MFU", "layout"]
    assert table[110].headings == table[100].headings == CORE
    assert f"1 × {LONG} eu-north1" in rows[130]  # noqa: RUF001
    assert f"1×{LONG} eu-north1" not in rows[100] and f"1×{LONG[:8]}" in rows[100]  # noqa: RUF001
    assert "…" in rows[90] and "8×A100-40GB" in rows[90]  # noqa: RUF001
    assert table[60].headings == ["#", "rent", "time", "cost"]
    for width, row in rows.items():
        assert len(row) <= width


def test_rows_leave_where_notes_need_the_room_but_not_those_that_are_named() -> None:
    answer = answer_of(12)
    last, first = answer.plans[-1], answer.plans[0]
    best = Recommended(id=first.id, position=1, reason="the cheapest", gap_to_cheapest=0.0)
    notes = ("x" * 250, "y")
    answer = answer.model_copy(
        update={"recommended": best, "headlines": Headlines(fastest=last.id), "notes": notes}
    )
    room = room_beside(note_lines(answer), 100)
    assert room == 24 - 3 - 1
    shown = render_estimate(answer, model="model.py", width=100, most_lines=room)
    assert len(shown) == room
    marks = [line.plain.split()[0] for line in shown]
    assert "1" in marks and "…12" in marks and "≈11" not in marks and "……" not in marks
    assert any("… rows above have no room" in line.plain for line in shown)
    assert len(render_estimate(answer, model="model.py", width=100)) > room
    fewest = render_estimate(answer, model="model.py", width=100, most_lines=1)
    assert sum(line.plain.startswith((" ", "≈", "…")) for line in fewest) >= 5


def test_without_notes_all_rows_stay() -> None:
    answer = make_ranked_estimate()
    assert room_beside(note_lines(answer), 100) == 24
    all_rows = render_estimate(answer, model="model.py", width=100)
    assert not any("have no room" in line.plain for line in all_rows)
    assert render_estimate(answer, model="model.py", width=100, most_lines=24) == all_rows


def test_the_legend_has_the_marks_of_the_rows_that_are_left_alone() -> None:
    """A mark that no row shows would be looked for in vain."""
    answer = answer_of(12)
    risky = [
        one.model_copy(update={"runnable": False, "p_oom": 0.9}) if one.position == 11 else one
        for one in answer.plans
    ]
    answer = answer.model_copy(update={"plans": tuple(risky)})

    def legend(most_lines: int | None) -> str:
        lines = render_estimate(answer, model="model.py", width=100, most_lines=most_lines)
        return "\n".join(line.plain for line in lines)

    assert "not run: see show" in legend(None)
    assert "not run" not in legend(16) and "≈11" not in legend(16)


def test_a_base_in_4_bits_says_by_one_mark_that_gpuplan_does_not_run_it() -> None:
    """`nf4, …` hid "not run", which the legend then explained to nobody."""
    answer = answer_of(3)
    plans = [
        one.model_copy(update={"runnable": False, "frozen_precision": "nf4"})
        for one in answer.plans
    ]
    answer = answer.model_copy(update={"plans": tuple(plans)})
    lines = render_estimate(answer, model="model.py", width=100)
    text = "\n".join(line.plain for line in lines)
    assert "nf4: frozen base in 4 bits (QLoRA), by a script of your own" in text
    assert "nf4, …" not in text and "not run" not in text


def test_notes_of_several_lines_take_the_room_of_one() -> None:
    notes = tuple(f"model.py:{line} reads a value with .item()" for line in (4, 7, 9))
    answer = answer_of(2).model_copy(update={"notes": notes})
    assert note_lines(answer) == ["Note: model.py:4, :7 and :9 each reads a value with .item()."]


def test_spot_plans_stand_beside_what_they_cost_on_demand() -> None:
    answer = make_ranked_estimate()
    plans = []
    for plan in answer.plans:
        assert plan.whole_job is not None
        job = plan.whole_job.model_copy(update={"on_demand_usd": Decimal(1234)})
        offer = plan.offer.model_copy(update={"purchase": "spot"})
        plans.append(plan.model_copy(update={"offer": offer, "whole_job": job}))
    spot = answer.model_copy(update={"plans": tuple(plans)})
    headings = PlanTable.of(spot, 120).headings
    assert "on demand" in headings and "spot" not in headings
    assert "on demand" not in PlanTable.of(answer, 120).headings
    lines = [text.plain for text in render_estimate(spot, model="model.py", width=120)]
    assert any("$1,200" in line for line in lines)
