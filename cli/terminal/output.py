"""Where a rendered answer goes: the terminal, a pipe, or a file that is written whole or not."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import click

from ...catalog.errors import UsageError
from ...catalog.files import write_chosen

SUFFIXES = {
    ".json": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".txt": "table",
    ".html": "html",
    ".htm": "html",
    ".xlsx": "xlsx",
    ".svg": "svg",
}
OTHER_FORMATS = frozenset(
    (".jsonl", ".ods", ".parquet", ".pdf", ".png", ".toml", ".tsv")
    + (".xls", ".xml", ".yaml", ".yml")
)
"""Endings of files that somebody would expect in a format that gpuplan does not write."""
WIDE = 200
"""Columns outside a terminal: in a pipe or a file nothing is cut off."""


def chosen_format(form: str | None, out_file: str | Path | None, formats: Sequence[str]) -> str:
    """Return the format asked for, else what the name of the file says, else the first."""
    if form is not None:
        return form
    guess = SUFFIXES.get(Path(out_file).suffix.casefold()) if out_file else None
    return guess if guess is not None and guess in formats else formats[0]


@dataclass(frozen=True)
class Screen:
    """What the answer is rendered for."""

    width: int = WIDE
    color: bool = False


def screen_for(out_file: str | Path | None = None) -> Screen:
    """Return the columns (COLUMNS, else the terminal's, else wide) and whether styles are wanted.

    Styles are for a terminal only, and NO_COLOR (https://no-color.org) turns them off.
    """
    shown = out_file is None and is_terminal(sys.stdout)
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        width = int(columns)
    else:
        width = shutil.get_terminal_size().columns if shown else WIDE
    return Screen(width, shown and not os.environ.get("NO_COLOR"))


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a standard stream is a terminal; None is one that is closed."""
    return stream is not None and stream.isatty()


def refuse_closed(out_file: str | Path | None) -> None:
    """Refuse to print where nothing takes it, as after `>&-`.

    Raises:
        UsageError: standard output is closed, and no file is given.
    """
    if out_file is None and sys.stdout is None:
        raise UsageError(
            "Standard output is closed, and the answer would be printed there.",
            fix="Give --out-file FILE, or leave standard output open.",
        )


def write_output(
    text: str | bytes, out_file: str | Path | None = None, *, option: str = "--out-file"
) -> None:
    """Print the text, or write it to the file; the file changes only when all is written.

    Args:
        text: All of it.
        out_file: Where to; None prints it.
        option: Which option named the file.

    Raises:
        UsageError: The file cannot be written, or nothing takes what is printed.
    """
    if out_file is None:
        refuse_closed(out_file)
        click.echo(text, nl=False)
        return
    target = Path(out_file)
    try:
        write_chosen(target, text)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # `main` knows what to say of a full disk.
        raise UsageError(
            f"Cannot write {target}: {error.strerror or error}.",
            fix=f"Give {option} a path in a folder you may write to.",
        ) from error
