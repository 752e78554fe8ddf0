"""`gpuplan diff`: what changed between two budgets, and why."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import click

from ...catalog.errors import LimitError, PriceError, UsageError
from ...planner.budget.project.project import PROJECT_FILE
from ..options.shared import ChangeText, GroupedCommand, option, output_options
from ..terminal.output import chosen_format, screen_for, write_output
from ..terminal.progress import counted_progress

if TYPE_CHECKING:
    from ...planner.budget.difference.causes import Difference

FORMATS = ("table", "json", "markdown")
Change = tuple[Decimal, bool]
"""A number, and whether it is a share of the earlier budget; else US dollars."""


@click.command("diff", cls=GroupedCommand)
@click.argument("budgets", metavar="BEFORE [AFTER]", nargs=-1)
@option(
    "Project",
    "--git",
    metavar="REV",
    help="Compare a project file with what it was at this git revision, at today's prices.",
)
@option(
    "Money",
    "--fail-if-over",
    type=ChangeText(),
    help="End with exit code 4 when it becomes dearer by more than this: 10% or $500.",
)
@option(
    "Output",
    "--silent-below",
    type=ChangeText(),
    help="Print nothing when it changes by less than this: 1% or $20.",
)
@output_options(*FORMATS)
def command(
    budgets: tuple[str, ...],
    git: str | None,
    fail_if_over: Change | None,
    silent_below: Change | None,
    form: str | None,
    out_file: str | None,
    quiet: bool,
) -> int:
    """Say what changed between two budgets, why, and by how much; the causes add up to the cent.

    BEFORE and AFTER are each a project file (reported now), a report that was kept with
    `gpuplan report -o report.json`, or the id of a kept plan. With --git give the project file
    alone; gpuplan.yaml is the default.

    \b
    Examples:
      gpuplan diff --git main
      gpuplan diff report.json gpuplan.yaml
      gpuplan diff 3f2a10c4 77b09e12
      gpuplan diff --git main --fail-if-over 10% --silent-below 1% --format markdown

    The exit code is 4 where --fail-if-over is exceeded, and 5 where that is not known, as something
    that is new or changed has no price.
    """  # noqa: D301
    answer = _asked(budgets, git, quiet=quiet)
    is_over = fail_if_over is not None and answer.difference_usd > _limit(answer, fail_if_over)
    if (
        silent_below is None
        or is_over
        or answer.not_compared
        or abs(answer.difference_usd) >= _limit(answer, silent_below)
    ):
        write_output(_rendered(answer, chosen_format(form, out_file, FORMATS), out_file), out_file)
    elif out_file is not None:
        write_output("", out_file)
    if is_over:
        if not quiet:
            click.echo(f"Over the limit of --fail-if-over: {answer.headline}", err=True)
        return LimitError.exit_code
    if fail_if_over is not None and answer.not_compared:
        if not quiet:
            said = f"Not known whether --fail-if-over is kept: {answer.not_compared_text}."
            click.echo(said, err=True)
        return PriceError.exit_code
    return 0


def _asked(budgets: tuple[str, ...], git: str | None, *, quiet: bool) -> Difference:
    """Return the answer to what was named.

    Raises:
        UsageError: There are too few or too many.
    """
    from ... import api

    def tell_user(text: str) -> None:
        if not quiet:
            click.echo(text, err=True)

    if git is not None and not budgets:
        budgets = (PROJECT_FILE,)
    expected = 2 if git is None else 1
    if len(budgets) != expected:
        raise UsageError(
            f"{len(budgets)} {'budget is' if len(budgets) == 1 else 'budgets are'} given; "
            + ("two are compared." if git is None else "with --git it is one project file."),
            fix="see the examples of `gpuplan diff --help`.",
        )
    with counted_progress("Planning experiments …", quiet=quiet) as tell:
        return api.diff(*budgets, git=git, on_progress=tell, on_output=tell_user)


def _limit(answer: Difference, change: Change) -> Decimal:
    """Return a change in US dollars."""
    number, is_share = change
    return number * answer.before.budget_usd if is_share else number


def _rendered(answer: Difference, form: str, out_file: str | None) -> str:
    from ..render.difference import render_lines, render_markdown
    from ..render.text.columns import to_text
    from ..render.text.folded import folded

    if form == "json":
        return answer.model_dump_json(indent=2) + "\n"
    if form == "markdown":
        return render_markdown(answer)
    screen = screen_for(out_file)
    return to_text(folded(render_lines(answer), screen.width), colour=screen.color)
