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
        expose_value=False,
        callback=_use_curves,
        help="Curve file of gpuplan calibrate, used for the accelerator it was measured on.",
    )(command)


def _use_curves(ctx: click.Context, _param: click.Parameter, path: Path | None) -> None:
    if path is None or ctx.resilient_parsing:
        return
    from ...profiles.curves.user_curves import with_curve_files

    ctx.with_resource(with_curve_files([path]))
