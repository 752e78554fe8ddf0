"""The burn-down charts: where their lines stand."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from kept_pages import launch

from gpuplan.cli.pages.burn_charts import budget_burn_down, launch_burn_down
from gpuplan.cli.render.report.tables.burn_down import UntilMonth
from gpuplan.launcher.store.burn_down import burn_down

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def drawn(hours: float, **changes) -> str:
    burn = burn_down(launch("net-1", NOW, hours, **changes), now=NOW)
    return str(launch_burn_down(burn, "net-1") or "")


def dot(text: str, kind: str) -> tuple[float, float]:
    found = re.search(rf'<circle class="{kind}" cx="(.*?)%" cy="(.*?)%"', text)
    assert found is not None, kind
    return float(found[1]), float(found[2])


def zero(text: str) -> float:
    found = re.search(r'class="zero" x1="0.00%" y1="(.*?)%"', text)
    assert found is not None
    return float(found[1])


def test_the_forecast_ends_where_nothing_is_left() -> None:
    text = drawn(1.0)
    (x_now, y_now), (x_end, y_end) = dot(text, "now"), dot(text, "ends")
    assert y_end == pytest.approx(zero(text), abs=0.02), "the plan's cost is used up"
    assert x_now < x_end and y_now < y_end
    # At one rate what is left falls by as much in each hour: $21.96 of $71.20 in the first.
    top = float(re.findall(r'class="spent" points="[\d.]+,([\d.]+)', text)[0]) / 10
    share = (y_now - top) / (y_end - top)
    assert share == pytest.approx(21.96 / 71.20, abs=0.002)


def test_more_than_planned_is_below_zero_and_has_no_forecast() -> None:
    text = drawn(4.0)
    assert dot(text, "over")[1] > zero(text)
    assert "forecast" not in text and 'class="ends"' not in text


def test_the_worst_case_is_drawn_where_it_is_near() -> None:
    assert "at most $96" in drawn(1.0)
    assert "at most" not in drawn(1.0, usd_worst=Decimal(5000))


@pytest.mark.parametrize(
    "changes", [{"usd_expected": None}, {"usd_expected": Decimal(0)}, {"attempts": ()}]
)
def test_what_has_no_plan_or_no_begin_is_not_drawn(changes) -> None:
    assert drawn(1.0, **changes) == ""


def test_a_plan_without_an_interval_is_drawn_without_its_band() -> None:
    text = drawn(1.0, usd_low=None, usd_high=None)
    assert "likely" not in text and dot(text, "ends")


def months(spent: Decimal | None) -> list[UntilMonth]:
    return [
        UntilMonth(
            month=f"2026-1{index}",
            planned_usd=Decimal(100 * (index + 1)),
            low_usd=Decimal(90 * (index + 1)),
            high_usd=Decimal(120 * (index + 1)),
            spent_usd=spent if index == 0 else None,
        )
        for index in range(3)
    ]


def test_a_budget_falls_to_what_the_plan_leaves() -> None:
    rows = months(Decimal(70))
    text = str(budget_burn_down(rows, budget_usd=Decimal(330), spent_usd=Decimal(150), now=NOW))
    planned = re.search(r'class="planned" points="(.*?)"', text)
    assert planned is not None
    places = [tuple(map(float, one.split(","))) for one in planned[1].split()]
    assert [round(x) for x, _ in places] == [0, 333, 667, 1000]
    falls = [b[1] - a[1] for a, b in zip(places, places[1:], strict=False)]
    assert falls == pytest.approx([falls[0]] * 3, abs=0.2), "as much each month"
    x, y = dot(text, "now")
    assert x == pytest.approx(100 * (1 + 22.5 / 31) / 3, abs=0.1)
    # $150 of three times $100 is half of the planned fall.
    assert y * 10 == pytest.approx((places[0][1] + places[3][1]) / 2, abs=1)


def test_a_budget_without_a_launch_has_its_plan_alone() -> None:
    text = str(budget_burn_down(months(None), budget_usd=Decimal(330), spent_usd=None, now=NOW))
    assert 'class="planned"' in text and 'class="spent"' not in text
    assert budget_burn_down([], budget_usd=Decimal(1), spent_usd=None, now=NOW) is None


@pytest.mark.parametrize("days", [-400, 400])
def test_today_stays_within_the_chart(days: int) -> None:
    text = str(
        budget_burn_down(
            months(None), budget_usd=Decimal(330), spent_usd=Decimal(1), now=NOW + timedelta(days)
        )
    )
    assert 0 <= dot(text, "now")[0] <= 100
