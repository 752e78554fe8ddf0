"""What is being done, shown on a terminal while it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def progress(text: str, *, quiet: bool) -> Iterator[None]:
    """Show the text on standard error while the block runs; nothing stays of it."""
    shown = not quiet and sys.stderr.isatty()
    if shown:
        click.echo(text, err=True, nl=False)
    try:
        yield
    finally:
        if shown:
            click.echo("\r\033[K", err=True, nl=False)
