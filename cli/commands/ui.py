"""`gpuplan ui`: what is kept on this machine as pages in a browser, read-only."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from ...catalog.errors import UsageError
from ..options.shared import GroupedCommand, option

NEEDED = ("starlette", "uvicorn", "jinja2")


@click.command("ui", cls=GroupedCommand)
@click.argument("project", metavar="[PROJECT]", required=False)
@option(
    "Output",
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    metavar="N",
    help="Where to listen on 127.0.0.1; 0: a port that is free.",
)
def command(project: str | None, port: int) -> int:
    """Show estimates, plans, reports, launches and prices as pages in a browser, read-only.

    PROJECT is a project file, or its folder: its page, made from its newest kept report, is the
    first one. The pages are for this machine alone (127.0.0.1), and for whoever opens the printed
    address, which has a random token. Nothing is changed, rented or ended from them: each page has
    the commands to copy. Ctrl-C ends it. It needs the extra `ui` (docs/ui.md).
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"The pages need {' and '.join(missing)}, not installed here.",
            fix='pip install "gpuplan[ui]"',
        )
    if project is not None:
        _refuse_nothing(project)
    from ..pages.server import serve

    serve(project=project, port=port, tell=_tell)
    return 0


def _refuse_nothing(project: str) -> None:
    """Raise UsageError for a project that has neither a file nor a kept report."""
    from ...api.projects.reports import kept_reports

    if not Path(project).exists() and not kept_reports(project):
        raise UsageError(
            f"There is no file {project}, and no report of it is kept.",
            fix="check the path, or leave it out to see what is kept.",
        )


def _tell(address: str) -> None:
    click.echo(address)
    click.echo("Open it in a browser on this machine. Ctrl-C ends it.", err=True)
