"""`gpuplan actuals`: what a run took beside what its plan predicted, and what was billed."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...catalog.errors import UsageError
from ..options.shared import GroupedCommand, option, output_options
from ..terminal.output import chosen_format, screen_for, write_output

if TYPE_CHECKING:
    from ...api.account.billing import BillingImport

FORMATS = ("table", "json", "markdown")
IMPORT = "import"
"""The word that is no run: a folder of that name is given as ./import."""


class RateText(click.ParamType):
    """What one unit of a currency is worth: EUR=1.08."""

    name = "code=usd"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Decimal]:
        """Return the currency and the US dollars for one unit of it."""
        if isinstance(value, tuple):
            return value
        code, _, number = str(value).partition("=")
        try:
            usd = Decimal(number.strip())
        except ArithmeticError:
            usd = Decimal(0)
        code = code.strip().upper()
        if not (len(code) == 3 and code.isalpha() and usd.is_finite() and usd > 0):
            self.fail(f"{value!r} is no rate; write EUR=1.08.", param, ctx)
        return code, usd


@click.command("actuals", cls=GroupedCommand)
@click.argument("words", metavar="RUN | import FILE…", nargs=-1, required=True)
@option(
    "Money",
    "--rate",
    "rates",
    type=RateText(),
    multiple=True,
    help="With import: US dollars for one unit of a currency: EUR=1.08.",
)
@output_options(*FORMATS)
def command(
    words: tuple[str, ...],
    rates: tuple[tuple[str, Decimal], ...],
    form: str | None,
    out_file: str | None,
    quiet: bool,
) -> None:
    """Show what a run took beside what its plan predicted, part by part; or import bills.

    RUN is the folder of results that `gpuplan run` named, or its record.json. `import` reads what
    providers billed (FOCUS 1.x, AWS CUR 2.0 as CSV; Google Cloud billing as CSV or JSON), keeps the
    charges of launches, and shows them beside what was counted. A month that is imported again
    replaces itself: give all files of a month at once.

    \b
    Examples:
      gpuplan actuals first
      gpuplan actuals import focus-2027-03.csv
      gpuplan actuals import bill.csv.gz --rate EUR=1.08
    """  # noqa: D301
    form = chosen_format(form, out_file, FORMATS)
    first, *others = words
    if first == IMPORT:
        text = _imported(others, dict(rates), form, out_file)
    elif others:
        raise UsageError(
            f"{len(words)} runs are given; one is shown at a time.",
            fix="give one RUN, or `import` before the files of a bill.",
        )
    elif rates:
        raise UsageError("--rate is for bills.", fix="give it with `gpuplan actuals import`.")
    else:
        text = _of_run(first, form, out_file)
    write_output(text, out_file)


def _of_run(run: str, form: str, out_file: str | None) -> str:
    from ... import api
    from ..render.runs.actuals import render_lines, render_markdown
    from ..render.text.columns import to_text
    from ..render.text.folded import folded

    answer = api.actuals(run)
    if form == "json":
        return answer.model_dump_json(indent=2) + "\n"
    if form == "markdown":
        return render_markdown(answer)
    screen = screen_for(out_file)
    return to_text(folded(render_lines(answer), screen.width), colour=screen.color)


def _imported(
    files: Sequence[str], rates: dict[str, Decimal], form: str, out_file: str | None
) -> str:
    from ... import api
    from ..render.runs.billing import render_lines, render_markdown
    from ..render.text.columns import to_text
    from ..render.text.folded import folded

    if not files:
        said = "No bill is given."
        if Path(IMPORT).exists():
            said += f" (For the run in the folder {IMPORT}, give ./{IMPORT}.)"
        raise UsageError(said, fix="name its files: `gpuplan actuals import bill.csv`.")
    answer: BillingImport = api.import_actuals(files, rates=rates)
    if form == "json":
        return answer.model_dump_json(indent=2) + "\n"
    if form == "markdown":
        return render_markdown(answer)
    screen = screen_for(out_file)
    return to_text(folded(render_lines(answer), screen.width), colour=screen.color)
