"""The option `--curves` that several commands share: kernel times that the user measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from .shared import option

F = TypeVar("F", bound=Callable[..., Any])


def curves_option(command: F) -> F:
    """Add `--curves`: a file of `gpuplan calibrate`, used before the embedded curves."""
    return option(
        "Machine",
        "--curves",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Curve file of gpuplan calibrate, used for the accelerator it was measured on.",
    )(command)


def given_curves(path: Path | None) -> tuple[Path, ...]:
    """Return the option's value as the api takes it."""
    return () if path is None else (path,)
