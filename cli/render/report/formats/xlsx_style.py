"""How the cells of a workbook look: number formats, inputs, sums that are the least they may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xlsxwriter import Workbook
    from xlsxwriter.format import Format

FORMATS: dict[str, str] = {
    "usd": '"$"#,##0.00',
    "about_usd": '"$"#,##0',
    "unit_usd": '"$"#,##0.00####',
    "share": "0%",
    "number": "#,##0.##",
    "count": "#,##0",
    "date": "yyyy-mm",
}
INPUTS = {"price": FORMATS["unit_usd"], "share": "0.0%", "rate": "0.####"}
YELLOW = {"bg_color": "#FFF7D6", "font_color": "#1D4F8A"}


@dataclass(frozen=True)
class Style:
    """The formats of cells."""

    bold: Format
    title: Format
    note: Format
    head: Format
    inputs: dict[str, Format]
    """Of cells that are there to be changed."""
    kinds: dict[str, Format]
    totals: dict[str, Format]
    least: dict[str, Format]
    """Of amounts that are the least that they may be, as `kinds` and `totals` are named."""

    most: Format
    """Of an amount that is the most that it may be: what such a sum leaves of a limit."""

    def usd(self, lower_bound: bool) -> Format:  # noqa: FBT001
        """Return the format of a sum."""
        return (self.least if lower_bound else self.kinds)["usd"]

    def total(self, lower_bound: bool) -> Format:  # noqa: FBT001
        """Return the format of the sum of sums."""
        return self.least["total"] if lower_bound else self.totals["usd"]


def styles_of(book: Workbook) -> Style:
    """Return the formats of a workbook's cells."""
    kinds = {name: book.add_format({"num_format": code}) for name, code in FORMATS.items()}
    top = {"bold": True, "top": 1}
    return Style(
        bold=book.add_format({"bold": True}),
        title=book.add_format({"bold": True, "font_size": 16}),
        note=book.add_format({"font_color": "#57606A"}),
        head=book.add_format({"bold": True, "bottom": 1, "text_wrap": True, "valign": "bottom"}),
        inputs={
            name: book.add_format({"num_format": code, **YELLOW}) for name, code in INPUTS.items()
        },
        kinds=kinds,
        totals={
            name: book.add_format({"num_format": code, **top}) for name, code in FORMATS.items()
        },
        least={
            "usd": book.add_format({"num_format": f'"≥ "{FORMATS["usd"]}'}),
            "about_usd": book.add_format({"num_format": f'"≥ "{FORMATS["about_usd"]}'}),
            "total": book.add_format({"num_format": f'"≥ "{FORMATS["usd"]}', **top}),
        },
        most=book.add_format({"num_format": f'"≤ "{FORMATS["usd"]}'}),
    )
