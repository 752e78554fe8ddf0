"""What changed between two budgets, as aligned lines or Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from rich.text import Text

from ...planner.budget.difference.causes import Cause, Difference, ExperimentDifference, Side
from .report.figures import NOTHING, UNKNOWN, clean, cut, least, usd
from .report.formats.markdown import escaped
from .text.columns import Align, aligned, column_widths

HEADINGS = ("", "before", "after", "difference")
ALIGNS: tuple[Align, ...] = ("left", "right", "right", "right")
MOST_ROWS = 40
"""Experiments and causes that are shown; the rest is summed up. All are in JSON."""
SMALL_SHARE, SMALL_USD = Decimal("0.001"), Decimal(1)
"""Of the largest cause, and at most so much: smaller causes are summed up."""
LONGEST = 160
LONGEST_NAME = 48


def render_lines(answer: Difference) -> list[Text]:
    """Return the difference as lines of a terminal: what changed, then why."""
    sums = [HEADINGS, *_sums(answer)]
    widths = column_widths(sums)
    lines = [Text(clean(answer.headline), style="bold"), Text("")]
    lines += [
        Text(aligned(row, widths, ALIGNS), style="bold" if row is HEADINGS else "") for row in sums
    ]
    lines += [Text("")]
    causes = [(one.kind, _worth(answer, one), _sentence(one.text)) for one in _shown(answer)]
    if causes:
        widths = column_widths(causes)
        lines += [Text(aligned(row, widths, ("left", "right", "left"))) for row in causes]
        lines += [Text(text) for text in _left_out(answer)]
    return lines


def render_markdown(answer: Difference) -> str:
    """Return the difference as Markdown for the comment of a pull request."""
    lines = [f"**{_escaped(clean(answer.headline))}**", ""]
    lines += [_row(HEADINGS), "| :--- | ---: | ---: | ---: |"]
    lines += [_row((_escaped(row[0]), *row[1:])) for row in _sums(answer)]
    shown = _shown(answer)
    if shown:
        lines += ["", "| cause | US dollars | |", "| :--- | ---: | :--- |"]
        lines += [
            _row((one.kind, _worth(answer, one), _escaped(_sentence(one.text)))) for one in shown
        ]
    lines += [f"\n{_escaped(text)}" for text in _left_out(answer)]
    names = f"{_escaped(_name(answer.before.name))} → {_escaped(_name(answer.after.name))}"
    return "\n".join([*lines, "", f"Compared: {names}."]) + "\n"


def signed(amount: Decimal) -> str:
    """Return an amount to the cent with its sign: "+$3.00", "−$3.00"."""
    return f"+{usd(amount)}" if amount > 0 else usd(amount)


def _sums(answer: Difference) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table of sums: experiments, fixed lines, contingency, the budget."""
    for one in answer.experiments[:MOST_ROWS]:
        yield (
            _name(one.name),
            NOTHING if one.is_new else _known(one.before_usd, one.name in answer.before.in_part),
            NOTHING if one.is_left_out else _known(one.after_usd, one.name in answer.after.in_part),
            UNKNOWN if one.name in answer.not_compared else signed(one.difference_usd),
        )
    rest = answer.experiments[MOST_ROWS:]
    if rest:
        yield (f"{len(rest)} others", *_together(rest))
    fixed = sum((one.usd for one in answer.project if one.kind == "fixed"), Decimal(0))
    if fixed:
        yield ("fixed lines", "", "", signed(fixed))
    before, after = answer.before, answer.after
    if before.contingency_usd or after.contingency_usd:
        more = after.contingency_usd - before.contingency_usd
        contingency = usd(before.contingency_usd), usd(after.contingency_usd)
        yield ("contingency", *contingency, signed(more))
    more = UNKNOWN if answer.not_compared else signed(answer.difference_usd)
    yield ("budget", _budget(before), _budget(after), more)


def _budget(side: Side) -> str:
    """Return a budget; "≥" before one that leaves out what has no price."""
    return usd(least(side.budget_usd, side.is_lower_bound))


def _together(rest: Sequence[ExperimentDifference]) -> tuple[str, str, str]:
    before = sum((one.before_usd or Decimal(0) for one in rest), Decimal(0))
    after = sum((one.after_usd or Decimal(0) for one in rest), Decimal(0))
    return usd(before), usd(after), signed(after - before)


def _shown(answer: Difference) -> tuple[Cause, ...]:
    causes = answer.causes
    if not causes:
        return ()
    small = min(SMALL_USD, SMALL_SHARE * abs(causes[0].usd))
    return tuple(one for one in causes[:MOST_ROWS] if abs(one.usd) >= small)


def _worth(answer: Difference, cause: Cause) -> str:
    """Return what a cause is worth; a price that is not known any more saves nothing."""
    amount = answer.worth(cause)
    return UNKNOWN if amount is None else signed(amount)


def _left_out(answer: Difference) -> Iterator[str]:
    rest = answer.causes[len(_shown(answer)) :]
    if rest:
        whole = sum((one.usd for one in rest), Decimal(0))
        which = "1 smaller cause" if len(rest) == 1 else f"{len(rest)} smaller causes together"
        yield f"{which}: {signed(whole)}."


def _known(amount: Decimal | None, lower_bound: bool) -> str:  # noqa: FBT001
    return UNKNOWN if amount is None else usd(least(amount, lower_bound))


def _name(text: str) -> str:
    return cut(clean(text), LONGEST_NAME)


def _sentence(text: str) -> str:
    return cut(clean(text), LONGEST)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return escaped(text).replace("\\$", "$")
