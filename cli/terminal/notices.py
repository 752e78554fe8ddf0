"""What goes to standard error beside the answer: warnings, and what the user's file printed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def warnings_to_stderr(*, quiet: bool) -> Iterator[None]:
    """Show each warning of the block once, as one line on standard error; none when quiet."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        # What an interrupt left open is no matter of the user's.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            yield
        finally:
            shown = dict.fromkeys(str(warning.message) for warning in caught)
            for message in () if quiet else shown:
                click.echo(f"Warning: {message}", err=True)


def show_output_of_file(text: str) -> None:
    """Show what the user's file printed, on standard error."""
    click.echo(f"--- printed by the model file\n{text.rstrip()}\n---", err=True)
