"""What was billed beside what was counted, as aligned lines or Markdown."""

from __future__ import annotations

from decimal import Decimal

from rich.text import Text

from ....api.account.billing import BilledLaunch, BillingImport
from ..report.figures import UNKNOWN, clean, usd
from ..report.formats.markdown import escaped
from ..text.columns import Align, aligned, column_widths

HEADINGS = ("launch", "counted", "billed", "difference", "at list prices", "drift")
ALIGNS: tuple[Align, ...] = ("left", "right", "right", "right", "right", "right")
MOST_MONTHS = 6


def render_lines(answer: BillingImport) -> list[Text]:
    """Return an import as lines of a terminal."""
    lines = [Text(text) for text in _said(answer)]
    if answer.launches:
        table = [HEADINGS, *(_cells(one) for one in answer.launches)]
        widths = column_widths(table)
        lines += [
            Text(aligned(row, widths, ALIGNS), style="bold" if row is HEADINGS else "")
            for row in table
        ]
    return [*lines, *(Text(text) for text in _notes(answer))]


def render_markdown(answer: BillingImport) -> str:
    """Return an import as Markdown."""
    lines = [escaped(text) for text in _said(answer)]
    if answer.launches:
        rules = [":---" if align == "left" else "---:" for align in ALIGNS]
        rows = [
            HEADINGS,
            rules,
            *((escaped(row[0]), *row[1:]) for row in map(_cells, answer.launches)),
        ]
        lines += ["", *(f"| {' | '.join(row)} |" for row in rows)]
    lines += [f"\n{escaped(text)}" for text in _notes(answer)]
    return "\n".join(lines) + "\n"


def _said(answer: BillingImport) -> list[str]:
    shown = [clean(month) for month in answer.months[:MOST_MONTHS]]
    more = f" and {len(answer.months) - MOST_MONTHS} more" if answer.months[MOST_MONTHS:] else ""
    twice = f", {answer.duplicates:,} of them twice" if answer.duplicates else ""
    return [
        f"{answer.charges:,} charges read, {answer.labelled:,} of launches kept{twice}:"
        f" {', '.join(shown)}{more}.",
        *_without_label(answer),
    ]


def _without_label(answer: BillingImport) -> list[str]:
    """Return what is billed for no launch, which the bill's sum holds too."""
    count = answer.charges - answer.labelled - answer.duplicates
    if not count:
        return []
    charges = "1 charge has" if count == 1 else f"{count:,} charges have"
    return [f"{charges} no label of a launch: {usd(answer.unlabelled_usd)}."]


def _notes(answer: BillingImport) -> list[str]:
    notes: list[str] = []
    if not answer.launches:
        notes.append(
            "No charge has the label gpuplan-run: activate it as a cost allocation tag where the"
            " bill is made (docs/actuals.md)."
        )
    strangers = sum(not one.is_known for one in answer.launches)
    if strangers:
        which = "1 launch is" if strangers == 1 else f"{strangers} launches are"
        counted = "it" if strangers == 1 else "them"
        notes.append(f"{which} of another store: nothing was counted for {counted}.")
    notes += _unbilled(answer)
    drifted = [one for one in answer.launches if one.is_drifted]
    if drifted:
        names = ", ".join(clean(one.run) for one in drifted[:3])
        notes.append(
            f"! {'1 launch is' if len(drifted) == 1 else f'{len(drifted)} launches are'} billed at"
            f" list prices 5 % or more off those that were counted with ({names}): look at the"
            " region and the prices of the catalogue."
        )
    return notes


def _unbilled(answer: BillingImport) -> list[str]:
    """Return what is counted and in no bill, that of bills which were read now first."""
    whys = {
        True: "no charge of these bills is of it: it is of another account, it has no label, or it"
        " was not billed",
        False: "import the bill of that month too, which the difference holds until then",
    }
    notes: list[str] = []
    for is_imported, why in whys.items():
        found = [one for one in answer.unbilled if one.is_month_imported is is_imported]
        if found:
            names = [f"{clean(one.run)} {one.month} {usd(one.counted_usd)}" for one in found[:3]]
            more = f" and {len(found) - 3} more" if found[3:] else ""
            notes.append(f"! Counted and not billed: {', '.join(names)}{more}: {why}.")
    return notes


def _cells(one: BilledLaunch) -> tuple[str, ...]:
    mark = " !" if one.is_drifted else ""
    drift = UNKNOWN if one.drift is None else f"{one.drift * 100:+.1f} %{mark}"
    return (
        clean(one.run),
        _known(one.counted_usd),
        usd(one.billed_usd),
        _known(one.difference_usd),
        _known(one.list_usd),
        drift,
    )


def _known(amount: Decimal | None) -> str:
    return UNKNOWN if amount is None else usd(amount)
