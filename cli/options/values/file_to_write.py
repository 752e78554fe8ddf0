"""The value of an option that names a file to write, checked before any work."""

from __future__ import annotations

import os
from typing import Any

import click


class FileToWrite(click.Path):
    """A file that an answer is written to, in a folder that is there, seen before any work."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        path = super().convert(value, param, ctx)
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            self.fail(f"there is no folder {folder} to write to.", param, ctx)
        if not os.access(path if os.path.exists(path) else folder, os.W_OK):
            self.fail(f"{path} cannot be written: permission denied.", param, ctx)
        return path
