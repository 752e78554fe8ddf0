"""`gpuplan report`: the budget of a project, or of kept plans."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...catalog.errors import LimitError, UsageError
from ...planner.budget.project.project import PROJECT_FILE
from ..options.shared import GroupedCommand, OneOf, option, output_options
from ..terminal.output import chosen_format, screen_for, write_output
from ..terminal.progress import counted_progress

if TYPE_CHECKING:
    from ...planner.budget.report.report import BudgetReport

FORMATS = ("table", "html", "markdown", "csv", "json", "xlsx", "focus")
TEMPLATES = ("grant", "chargeback", "calculator")


@click.command("report", cls=GroupedCommand)
@click.argument("projects", metavar="[PROJECT | PLAN-ID…]", nargs=-1)
@option(
    "Project",
    "--as-of",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="The last report of this file that was made up to this day, as it was then.",
)
@option(
    "Project",
    "--reprice",
    is_flag=True,
    help="Made anew, with what moved since the last report of this file, or that of --as-of.",
)
@option(
    "Output",
    "--template",
    type=OneOf(TEMPLATES),
    default=None,
    help="In place of the report: a request for cloud credits, charges by owner, or calculator "
    "lines.",
)
@output_options(*FORMATS)
def command(
    projects: tuple[str, ...],
    as_of: datetime | None,
    reprice: bool,
    template: str | None,
    form: str | None,
    out_file: str | None,
    quiet: bool,
) -> int:
    """Write the budget of a project: what it costs, when, on what, how sure, and who pays.

    PROJECT is a file like gpuplan.yaml (the default) or its folder; `gpuplan init --project` writes
    one to start from. Ids of kept plans make a report of one run of each.

    \b
    Examples:
      gpuplan report
      gpuplan report gpuplan.yaml -o report.html
      gpuplan report gpuplan.yaml -o budget.xlsx
      gpuplan report 3f2a10c4 77b09e12 --format markdown
      gpuplan report --template grant -o request.html

    The exit code is 4 where a limit of the project with `on_exceed: fail` is exceeded, by the plan
    or by what launches have cost, or where nobody states the price of what counts against it.
    """  # noqa: D301
    form = _form_of(template, form, out_file)
    if form == "xlsx" and out_file is None:
        raise UsageError(
            "A workbook is no text to print.", fix="name a file: --out-file budget.xlsx."
        )
    report = _asked(projects, as_of, reprice=reprice, quiet=quiet)
    write_output(_rendered(report, template, form, out_file), out_file)
    if out_file is not None and not quiet:
        click.echo(report.summary[0], err=True)
    if not report.must_not_pass:
        return 0
    if not quiet:
        for one in report.limits:
            if one.must_not_pass:
                click.echo(one.over_text, err=True)
    return LimitError.exit_code


def _asked(
    projects: tuple[str, ...], as_of: datetime | None, *, reprice: bool, quiet: bool
) -> BudgetReport:
    """Return the report of the project file, or of the plans, that were named."""
    from ... import api

    if not projects and not Path(PROJECT_FILE).exists():
        raise UsageError(
            f"There is no {PROJECT_FILE} here.",
            fix="write one with `gpuplan init --project`, name it, or give ids of kept plans.",
        )
    named = projects or (PROJECT_FILE,)
    if len(named) == 1 and _is_file(named[0]):
        with counted_progress("Planning experiments …", quiet=quiet) as tell:
            day = None if as_of is None else as_of.date()
            return api.report(named[0], as_of=day, reprice=reprice, on_progress=tell)
    if as_of is not None or reprice:
        asked = "--reprice" if reprice else "--as-of"
        raise UsageError(
            f"{asked} is of a project file, and ids of plans are given.",
            fix="name the file; a kept plan stays as it was anyway.",
        )
    files = [one for one in named if _is_file(one)]
    if files:
        raise UsageError(
            f"{len(named)} projects or plans are given, and {files[0]} is a file.",
            fix="give one project file, or ids of kept plans alone.",
        )
    return api.report_of_plans(named)


def _is_file(name: str) -> bool:
    path = Path(name)
    return path.exists() or path.suffix.lower() in (".yaml", ".yml")


def _form_of(template: str | None, form: str | None, out_file: str | None) -> str:
    """Return the format to write; a template has some of the report's."""
    if template is None:
        return chosen_format(form, out_file, FORMATS)
    from ..render.report.write import TEMPLATE_FORMATS

    known = TEMPLATE_FORMATS[template]
    asked = form or chosen_format(None, out_file, ("", *FORMATS)) or known[0]
    if asked not in known:
        raise UsageError(
            f"The template {template} is not written as {asked}.",
            fix=f"use --format {' or '.join(known)}.",
        )
    return asked


def _rendered(
    report: BudgetReport, template: str | None, form: str, out_file: str | None
) -> str | bytes:
    if template is not None:
        from ..render.report.write import as_template

        return as_template(report, template, form)
    if form == "table":
        from ..render.report.table import render_table
        from ..render.text.columns import to_text

        screen = screen_for(out_file)
        return to_text(render_table(report, width=screen.width), colour=screen.color)
    from ..render.report import write

    if form == "xlsx":
        return write.as_xlsx(report)
    return write.as_text(report, "md" if form == "markdown" else form)  # pyright: ignore[reportArgumentType]
