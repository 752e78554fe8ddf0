"""The page in Chromium: its charts, light and dark, on a phone, on paper, with the keyboard.

`make test-report` installs what these need and runs them; elsewhere they skip.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import browser as engine
import pytest
from budget_reports import bare_report, hostile_report, large_report, small_report

from gpuplan.cli.render.report.charts.charts import CHARTS
from gpuplan.cli.render.report.figures import usd
from gpuplan.cli.render.report.formats.html import render_html
from gpuplan.cli.render.report.write import as_template

if TYPE_CHECKING:
    # Not installed for `make test`, which checks types: only for `make test-report`.
    from playwright.sync_api import Browser, Page  # pyright: ignore[reportMissingImports]

pytestmark = pytest.mark.slow

DESK, PHONE = (1280, 900), (360, 740)
PAGES = {
    "small": lambda: render_html(small_report()),
    "plain": lambda: render_html(small_report(), draws=False),
    "large": lambda: render_html(large_report()),
    "hostile": lambda: render_html(hostile_report()),
    "bare": lambda: render_html(bare_report()),
    "grant-small": lambda: as_template(small_report(), "grant", "html"),
    "grant-large": lambda: as_template(large_report(), "grant", "html"),
    "grant-hostile": lambda: as_template(hostile_report(), "grant", "html"),
    "chargeback": lambda: as_template(hostile_report(), "chargeback", "html"),
}
Opener = Callable[..., engine.Seen]


@pytest.fixture(scope="module")
def files(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, write in PAGES.items():
        (folder / f"{name}.html").write_text(write(), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in PAGES}


@pytest.fixture
def opened(chromium: Browser, files: dict[str, Path]) -> Iterator[Opener]:
    """Yield `opened(name, size, scheme, bypass_csp=…)`: a page as a reader has it."""

    def opening(
        name: str, size: tuple[int, int] = DESK, scheme: Any = "light", *, bypass_csp: bool = False
    ) -> engine.Seen:
        return engine.Seen(context(size, scheme, bypass_csp=bypass_csp).new_page(), files[name])

    with engine.contexts(chromium) as context:
        yield opening


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_quietly_and_fits(
    opened: Opener, name: str, size: tuple[int, int], scheme: str
) -> None:
    seen = opened(name, size, scheme)
    for _ in range(2):
        wide = seen.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= size[0], "the page itself never scrolls sideways"
        seen.open_all()
    assert seen.complaints == []
    assert seen.asked == [seen.page.url], "a page asks for nothing but itself"


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [
        ("small", DESK, "light"),
        ("small", DESK, "dark"),
        ("plain", PHONE, "light"),
        ("hostile", PHONE, "dark"),
        ("bare", DESK, "light"),
        ("grant-large", DESK, "light"),
        ("grant-hostile", PHONE, "dark"),
        ("chargeback", PHONE, "light"),
    ],
)
def test_axe_finds_no_violation(
    opened: Opener, name: str, size: tuple[int, int], scheme: str
) -> None:
    seen = opened(name, size, scheme, bypass_csp=True)
    seen.open_all()
    assert seen.violations() == []


def test_every_chart_is_there_with_its_values(opened: Opener) -> None:
    report = small_report()
    page = opened("small").page
    captions = page.locator("figcaption").all_inner_texts()
    assert [text.replace("\xa0", " ") for text in captions] == [
        CHARTS[name][0]
        for name in (
            "cost_by_month",
            "timeline",
            "waterfall",
            "tornado",
            "forecast",
            "remaining",
            "accelerators",
            "capacity",
            "fronts",
            "steps",
            "memory",
        )
    ]
    texts = "\n".join(figure_of(page, "How the parts").locator("text").all_text_contents())
    for row in report.by_kind:
        assert usd(row.usd) in texts
    assert usd(report.budget_usd) in texts


def figure_of(page: Page, caption: str) -> Any:
    return page.locator("figure", has=page.locator("figcaption", has_text=caption))


def boxes(page: Page, caption: str, colour: str) -> list[dict[str, float]]:
    """Return the boxes of a chart's marks of one colour, in the units of the drawing."""
    marks = figure_of(page, caption).locator(f'path[fill="{colour}"]')
    found = marks.evaluate_all("all => all.map(one => one.getBBox()).map(b => [b.width, b.height])")
    return [{"width": width, "height": height} for width, height in found]


def test_the_bars_are_as_long_as_the_amounts(opened: Opener) -> None:
    report = small_report()
    page = opened("small").page
    budget = boxes(page, "How the parts", "#4b5563")[0]["width"]
    parts = boxes(page, "How the parts", "#2563a8")
    amounts = [*(row.usd for row in report.by_kind), report.contingency_usd]
    assert len(parts) == len(amounts)
    for part, amount in zip(parts, amounts, strict=True):
        assert part["width"] / budget == pytest.approx(float(amount / report.budget_usd), abs=2e-3)


def test_the_stacks_are_as_high_as_the_amounts(opened: Opener) -> None:
    report = small_report()
    dearest = report.by_experiment[0].name
    amounts = [
        sum(
            float(one.usd)
            for one in report.entries
            if str(one.month) == month.name and one.experiment == dearest
        )
        for month in report.by_month
    ]
    drawn = boxes(opened("small").page, "Cost by month", "#2563a8")
    bars = [one["height"] for one in drawn if one["width"] > 20]
    amounts = [amount for amount in amounts if amount]
    assert len(bars) == len(amounts)
    for bar, amount in zip(bars, amounts, strict=True):
        assert bar / max(bars) == pytest.approx(amount / max(amounts), abs=0.01)


def test_the_colours_follow_the_scheme(opened: Opener) -> None:
    script = """() => [
        getComputedStyle(document.body).backgroundColor,
        getComputedStyle(document.querySelector('path[fill="#2563a8"]')).fill,
        getComputedStyle(document.querySelector('figure text')).fill]"""
    light = opened("small", scheme="light").page.evaluate(script)
    dark = opened("small", scheme="dark").page.evaluate(script)
    assert light == ["rgb(255, 255, 255)", "rgb(37, 99, 168)", "rgb(31, 41, 55)"]
    assert dark == ["rgb(18, 22, 28)", "rgb(125, 179, 236)", "rgb(230, 233, 238)"]


def test_it_prints_with_everything_unfolded(opened: Opener) -> None:
    page = opened("large", scheme="dark").page
    page.emulate_media(media="print")
    heights = page.locator("details table").evaluate_all("all => all.map(one => one.offsetHeight)")
    assert heights and min(heights) > 20
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(255, 255, 255)", "paper is white whatever the screen is"
    assert 5 <= sheets(page) <= 60


def sheets(page: Page) -> int:
    data = page.pdf(format="A4", print_background=True)
    assert data.startswith(b"%PDF-")
    return max(map(int, re.findall(rb"/Count (\d+)", data)))


@pytest.mark.parametrize("name", ["grant-small", "grant-large", "grant-hostile"])
def test_a_request_for_credits_prints_on_three_sheets(opened: Opener, name: str) -> None:
    assert 1 <= sheets(opened(name).page) <= 3


def test_it_can_be_used_with_the_keyboard_alone(opened: Opener) -> None:
    page = opened("large").page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    fold = page.locator("summary").first
    fold.focus()
    page.keyboard.press("Enter")
    assert page.locator("details").first.get_attribute("open") is not None
    page.keyboard.press("Tab")
    focused = page.evaluate("document.activeElement.className")
    assert focused == "scroll", "a table that scrolls can be scrolled by keys"


def test_names_of_every_script_are_shown_and_act_on_nothing(opened: Opener) -> None:
    page = opened("hostile").page
    seen = page.locator("body").inner_text()
    for text in ("<script>alert(1)</script>", "שלום", "🚀", "{{ 7 * 7 }}", "=HYPERLINK("):
        assert text in seen
    assert page.locator("script, img").count() == 0
