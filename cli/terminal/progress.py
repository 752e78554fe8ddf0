"""Progress shown on a terminal while a command works."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import click

from .output import is_terminal


@contextmanager
def progress(text: str, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the text on standard error while the block runs, and clear it after.

    Yields the callback that says a line which stays, above the text; without effect when quiet.
    """
    shown = not quiet and is_terminal(sys.stderr)

    def show(line: str) -> None:
        if shown:
            click.echo(line, err=True, nl=False)

    def say(line: str) -> None:
        show("\r\033[K")
        if not quiet:
            click.echo(line, err=True)
        show(text)

    show(text)
    try:
        yield say
    finally:
        show("\r\033[K")


PATIENCE_S = 2.0
"""Work that ends within this shows one line of text; a bar would only flicker."""

Tell = Callable[[str, int | None, int | None], None]


@contextmanager
def counted_progress(
    text: str, *, quiet: bool, clock: Callable[[], float] = time.monotonic
) -> Iterator[Tell]:
    """Show the text, and from the third second how much is done and how long the rest may take.

    Yields the callback that takes what is being done, how much is done, and of how much. Nothing is
    shown where standard error is no terminal, or when quiet.

    Args:
        text: What is shown until then.
        quiet: Whether nothing is to be shown.
        clock: Returns seconds.
    """
    if quiet or not is_terminal(sys.stderr):
        yield lambda _stage, _done, _total: None
        return
    start_s = clock()
    with ExitStack() as shown:
        bar: Tell | None = None

        def tell(stage: str, done: int | None, total: int | None) -> None:
            nonlocal bar
            if bar is None and clock() - start_s >= PATIENCE_S:
                shown.pop_all().close()
                bar = shown.enter_context(_bar())
            if bar is not None:
                bar(stage, done, total)

        shown.enter_context(progress(text, quiet=False))
        yield tell


@contextmanager
def _bar() -> Iterator[Tell]:
    """Yield the callback of a line with a bar, a count and the time left, cleared at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[count]}"),
        TimeRemainingColumn(),
    )
    # Twice a second is enough for eyes, and takes nothing measurable from the work.
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, refresh_per_second=2) as bar:
        task = bar.add_task("", total=None, count="")
        last, before = "", 0

        def show(stage: str, done: int | None, total: int | None) -> None:
            nonlocal task, last, before
            name = stage[:1].upper() + stage[1:]
            if done is None or total is None:  # An uncounted stage leaves the count as it is.
                bar.update(task, description=name)
                return
            count = f"{done} of {total}"
            if stage != last or done < before:
                # A task of its own: what one stage took says nothing of how long another takes.
                bar.remove_task(task)
                task, last = bar.add_task(name, total=total, count=count), stage
            before = done
            bar.update(task, description=name, completed=done, count=count)

        yield show


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
