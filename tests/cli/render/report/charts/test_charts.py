"""The charts hold the report's own numbers, in colours that can be told from the page."""

import json
from decimal import Decimal

import pytest
from budget_reports import bare_report, hostile_report, large_report, small_report

from gpuplan.cli.render.report.charts import charts
from gpuplan.cli.render.report.charts.charts import CHARTS
from gpuplan.cli.render.report.charts.drawing import BAND, COLOURS, INK, LIMIT, MUTED, PAPER, Spec
from gpuplan.cli.render.report.charts.svg import as_svg

MAKERS = [small_report, large_report, hostile_report]


def spec_of(name: str, report) -> Spec:
    made = CHARTS[name][1](report)
    assert made is not None
    return made


def values(spec: Spec, layer: int = 0) -> list[dict]:
    return spec["layer"][layer]["data"]["values"]


@pytest.mark.parametrize("make", MAKERS)
def test_the_stacks_add_up_to_each_month(make) -> None:
    report = make()
    rows = values(spec_of("cost_by_month", report))
    for month in report.by_month:
        drawn = sum(Decimal(str(row["usd"])) for row in rows if row["month"] == month.name)
        assert drawn == month.usd
    assert len({row["series"] for row in rows}) <= charts.MOST_SERIES + 1


def test_limits_of_months_are_drawn() -> None:
    report = small_report()
    rows = values(spec_of("cost_by_month", report), 1)
    assert [row["limit"] for row in rows] == [float(row.limit_usd or 0) for row in report.by_month]


@pytest.mark.parametrize("make", MAKERS)
def test_the_waterfall_goes_from_nothing_to_the_budget(make) -> None:
    report = make()
    rows = values(spec_of("waterfall", report))
    assert rows[0]["begin"] == 0
    for before, after in zip(rows[:-2], rows[1:-1], strict=True):
        assert before["end"] == after["begin"]
    assert rows[-1] == {
        "part": "budget",
        "begin": 0.0,
        "end": float(report.budget_usd),
        "kind": "sum",
        "text": f"${report.budget_usd:,.2f}",
    }


def test_the_tornado_has_both_ends_of_every_assumption() -> None:
    report = small_report()
    rows = values(spec_of("tornado", report))
    assert [(row["begin"], row["end"]) for row in rows] == [
        (float(report.total.usd), float(end))
        for one in report.sensitivities
        for end in (one.low_usd, one.high_usd)
    ]


def test_the_fan_holds_plan_range_and_actual() -> None:
    report = small_report()
    spec = spec_of("forecast", report)
    band = values(spec)
    assert [(row["low"], row["high"]) for row in band] == [
        (float(one.p10_usd), float(one.p90_usd)) for one in report.month_ranges
    ]
    assert band[-1]["planned"] == float(report.total.usd)
    actual = [row["usd"] for row in values(spec, 1) if row["line"] == "actual"]
    assert actual == [412.35, 508.45]
    left = [row for row in values(spec_of("remaining", report), 1) if row["line"] == "planned"]
    assert left[-1]["usd"] == float(report.contingency_usd)


def test_the_timeline_has_the_hours_of_the_report() -> None:
    report = small_report()
    rows = values(spec_of("timeline", report))
    assert [row["begin"][:10] for row in rows] == ["2027-01-01", "2027-02-01", "2027-03-01"]
    assert len(values(spec_of("timeline", large_report()))) == 60


def test_fronts_steps_memory_and_accelerators_are_those_of_the_report() -> None:
    report = small_report()
    points = spec_of("fronts", report)["data"]["values"]
    assert sorted(row["usd"] for row in points) == sorted(
        float(point.usd) for row in report.experiments for point in row.front
    )
    step = [row["value"] for row in values(spec_of("steps", report)) if row["name"] == "pretrain"]
    assert sum(step) == pytest.approx(sum(report.experiments[0].step_parts.values()) * 1e3)
    room = values(spec_of("memory", report), 1)
    assert room[0]["capacity"] == pytest.approx(8.5e10 / 2**30)
    peaks = [row["peak"] for row in values(spec_of("accelerators", report))]
    assert peaks == [use.peak for use in report.accelerators]


def test_what_is_unknown_is_not_drawn() -> None:
    for name in ("tornado", "fronts", "steps", "memory", "capacity"):
        assert CHARTS[name][1](bare_report()) is None


@pytest.mark.parametrize("name", CHARTS)
def test_each_is_drawn_without_a_network_and_without_markup_of_a_name(name: str) -> None:
    spec = spec_of(name, hostile_report())
    assert json.loads(json.dumps(spec)) == spec
    assert "url" not in json.dumps(spec).replace("vega-lite", "")[:400]
    drawn = as_svg(spec, "a <label>")
    assert drawn.startswith("<svg") and 'aria-label="a &lt;label&gt;"' in drawn
    assert "<script" not in drawn and "<img" not in drawn
    assert ' id="' not in drawn and "font-family" not in drawn


def luminance(colour: str) -> float:
    """Return the relative luminance: https://www.w3.org/TR/WCAG22/#dfn-relative-luminance"""
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    red, green, blue = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colour", [*COLOURS, INK, MUTED, LIMIT])
def test_colours_can_be_told_from_the_page(colour: str) -> None:
    assert (luminance(PAPER) + 0.05) / (luminance(colour) + 0.05) >= 4.5
    assert colour != BAND
