"""The page of a report: complete, self-contained, small, and nothing in a name is markup."""

import re
import time
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser

import pytest
from budget_reports import (
    HOSTILE_NAMES,
    bare_report,
    hostile_report,
    large_report,
    make_report,
    small_report,
)

from gpuplan.cli.render.report.charts.charts import CHARTS
from gpuplan.cli.render.report.figures import about_usd, clean, usd
from gpuplan.cli.render.report.formats import html as page
from gpuplan.cli.render.report.formats.html import render_html
from gpuplan.cli.render.report.sections import sections
from gpuplan.planner.budget.report.report import BudgetReport

MAKERS = [small_report, large_report, hostile_report, bare_report]
VOID = {"meta", "link", "br", "img"}
IMPLIED = {"td", "th", "tr"}
"""HTML lets the end of these be left out: https://html.spec.whatwg.org/#syntax-tag-omission"""


class Page(HTMLParser):
    """What a page holds: its elements, their attributes and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID | IMPLIED:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in IMPLIED:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).replace("\xa0", " ").split())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@cache
def rendered(make: Callable[[], BudgetReport], draws: bool) -> str:
    """Return the page of a report: its charts take a second, and several tests read it."""
    return render_html(make(), draws=draws)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("draws", [False, True])
def test_it_is_well_formed_and_self_contained(make, draws: bool) -> None:
    text = rendered(make, draws)
    read = Page(text)
    assert text.startswith('<!doctype html>\n<html lang="en">')
    assert read.open == []
    assert not {name for name, _ in read.tags} & {"script", "img", "iframe", "object", "form"}
    for _, attributes in read.tags:
        assert not {name for name in attributes if name.startswith("on") or name == "src"}
        address = attributes.get("href") or "#"
        assert address.startswith(("#", "https://", "data:,")), address
    assert not re.search(r"url\(|@import|@font-face", text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize("make", MAKERS)
def test_it_can_be_read_without_seeing_it(make) -> None:
    read = Page(rendered(make, True))
    ids = [str(one["id"]) for _, one in read.tags if one.get("id")]
    assert len(ids) == len(set(ids))
    for _, attributes in read.tags:
        label = attributes.get("aria-labelledby")
        assert label is None or label in ids
    assert {one["href"] for one in read.named("a") if str(one["href"]).startswith("#")} <= {
        f"#{name}" for name in ids
    }
    assert all(one.get("scope") in ("col", "row") for one in read.named("th"))
    assert len(read.named("caption")) == len(read.named("table")) >= 10
    assert len(read.named("h1")) == 1
    images = read.named("svg")
    assert len(images) == len(read.named("figcaption"))
    assert all(one["role"] == "img" and one["aria-label"] for one in images)


def test_it_shows_every_figure_of_every_table() -> None:
    report = small_report()
    text = Page(render_html(report)).text
    for section in sections(report):
        for part in section.parts:
            for row in [*part.table.texts(), part.table.total_texts() or []]:
                assert all(cell in text for cell in row), row
    for amount in (report.budget_usd, report.total.usd, *(o.total.usd for o in report.options)):
        assert usd(amount) in text
    for line in (*report.summary, *report.risks, *report.not_included):
        assert line in text
    assert about_usd(report.sensitivities[0].low_usd) in text


@pytest.mark.parametrize("draws", [False, True])
def test_names_are_text(draws: bool) -> None:
    read = Page(rendered(hostile_report, draws))
    for name in HOSTILE_NAMES:
        assert " ".join(clean(name).replace("\xa0", " ").split()) in read.text
    assert "49" not in re.findall(r"\{\{ 7 \* 7 \}\}|\b49\b(?=\{% raw)", read.text)


def test_sixty_experiments_are_small_and_quick() -> None:
    render_html(small_report())
    report = large_report()
    started = time.process_time()
    text = render_html(report)
    taken_s = time.process_time() - started
    assert len(text.encode()) <= 400_000
    assert taken_s <= 3 * 2, "3 s on a machine of its own"
    assert text.count("<svg") == len(CHARTS)


def test_rows_that_are_left_out_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_ROWS", 5)
    report = make_report([f"e{index}" for index in range(20)], months=6)
    left = sum(one.usd for one in report.by_experiment[5:])
    text = Page(render_html(report, draws=False)).text
    assert f"16 more {usd(left)}" in text.replace("more$", "more $")


def test_without_the_extra_bars_stand_for_charts() -> None:
    text = render_html(small_report(), draws=False)
    assert "<svg" not in text
    lengths = re.findall(r'style="--w:([\d.]+)%"', text)
    assert lengths and max(map(float, lengths)) == 100.0
    assert "<details>" not in text, "a short table is open where no chart shows its figures"


def test_unknown_is_said() -> None:
    text = Page(render_html(bare_report())).text
    assert "Energyunknown" in text.replace(" ", "")
    assert "Within the limits" not in text and "Over a limit" not in text


def test_sources_are_links_and_names_are_not() -> None:
    report = small_report()
    links = [one["href"] for one in Page(render_html(report, draws=False)).named("a")]
    assert "https://arxiv.org/abs/2410.21680" in links
    named = make_report(["https://example.org/x"], months=3)
    links = [str(one["href"]) for one in Page(render_html(named, draws=False)).named("a")]
    assert not [address for address in links if "example.org" in address]


def test_every_colour_of_a_chart_follows_the_scheme() -> None:
    text = render_html(small_report())
    drawn = set(re.findall(r' (fill|stroke)="(#[0-9a-f]{6})"', text))
    ruled = set(re.findall(r'svg \[(fill|stroke)="(#[0-9a-f]{6})"\]', text))
    assert drawn and drawn <= ruled
