"""A report as Markdown: short enough for a comment, and nothing in a name is markup."""

import re

from budget_reports import (
    HOSTILE_NAMES,
    bare_report,
    hostile_report,
    large_report,
    make_report,
    small_report,
)

from gpuplan.cli.render.report.figures import usd
from gpuplan.cli.render.report.formats.markdown import escaped, render_markdown
from gpuplan.cli.render.report.words import beside_plan


def test_the_first_page_says_the_total_the_options_what_moves_it_and_what_is_missing() -> None:
    report = small_report()
    page = render_markdown(report).partition("<details>")[0]
    for text in (
        usd(report.budget_usd),
        usd(report.total.usd),
        *report.summary,
        *(usd(option.total.usd) for option in report.options),
        *(beside_plan(option, report.options) for option in report.options),
        *report.not_included,
        *report.risks,
        *(one.name[1:] for one in report.sensitivities),
    ):
        assert text in page
    assert "1 of 8 limits are exceeded: owner Ada by" in page


def test_it_fits_a_comment_whatever_the_size() -> None:
    assert len(render_markdown(large_report())) < 65_000
    names = [f"{'|' * 100}{index}" for index in range(400)]
    assert len(render_markdown(make_report(names, months=36))) < 65_000


def test_what_is_left_out_is_summed() -> None:
    report = large_report()
    text = render_markdown(report)
    rows = re.findall(r"^\| (\d+) more \| (\$[\d,.]+) \|", text, re.MULTILINE)
    assert rows
    shown = len(report.by_experiment) - int(rows[0][0])
    assert rows[0][1] == usd(sum(one.usd for one in report.by_experiment[shown:]))


def test_every_table_has_one_width_and_every_fold_an_end() -> None:
    for report in (small_report(), hostile_report(), bare_report()):
        text = render_markdown(report)
        assert text.count("<details>") == text.count("</details>") > 5
        for block in text.split("\n\n"):
            rows = [line for line in block.splitlines() if line.startswith("|")]
            widths = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
            assert len(widths) <= 1, block


def test_names_are_text() -> None:
    text = render_markdown(hostile_report())
    tags = {tag for tag in re.findall(r"<(/?[a-z]\w*)", text)}
    assert tags <= {"details", "/details", "summary", "/summary", "https"}
    assert "](javascript" not in text.replace("\\](javascript", "")
    assert "@SUM" not in text
    assert "\u202e" not in text


def test_markup_is_spelled_out() -> None:
    assert escaped("a|b`c`*d*_e_[f](g)") == r"a\|b\`c\`\*d\*\_e\_\[f\](g)"
    assert escaped("<b>&amp;</b>") == "&lt;b&gt;&amp;amp;&lt;/b&gt;"
    assert escaped("- item") == r"\- item"
    assert escaped("7. item") == "7&#8203;. item"
    assert escaped("https://example.org") == r"https\://example.org"
    assert "\n" not in escaped("a\nb")
    assert all(escaped(name) for name in HOSTILE_NAMES)


def test_unknown_is_shown_as_unknown() -> None:
    text = render_markdown(bare_report())
    assert "| Energy | **unknown** |" in text
    assert "| pretrain | 3 |" in text
    assert "Limits and funding" not in text
