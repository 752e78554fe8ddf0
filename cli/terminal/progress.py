"""Progress shown on a terminal while a command works."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from .output import is_terminal


@contextmanager
def progress(text: str, *, quiet: bool) -> Iterator[None]:
    """Show the text on standard error while the block runs, and clear it after."""
    shown = not quiet and is_terminal(sys.stderr)
    if shown:
        click.echo(text, err=True, nl=False)
    try:
        yield
    finally:
        if shown:
            click.echo("\r\033[K", err=True, nl=False)


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Callable[[str, int | None, int | None], None]]:
    """Yield the callback of a progress bar on standard error, shown while the block runs.

    It takes what is being done, how much is done, and of how much (None: not known).
    """
    if quiet or not is_terminal(sys.stderr):
        yield lambda _stage, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(stage: str, done: int | None, total: int | None) -> None:
            bar.update(task, description=stage, completed=done or 0, total=total)

        yield show
