"""What is being done, shown on a terminal while it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from .output import is_terminal


@contextmanager
def progress(text: str, *, quiet: bool) -> Iterator[None]:
    """Show the text on standard error while the block runs; nothing stays of it."""
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
    """Show a bar on standard error while the block runs; give what is called with the news.

    The news are what is being done, how far it is, and of how much (None where nobody knows).
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
