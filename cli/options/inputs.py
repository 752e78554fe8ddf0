"""How commands that start from a model file read it, with what is said on the way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..terminal.progress import progress
from .groups import ModelOptions, OutputOptions

if TYPE_CHECKING:
    from ...api import Inputs
    from ...catalog.vocabulary import Precision
    from ...planner.plan.question import Machine


@dataclass(frozen=True, kw_only=True)
class InputsOptions(ModelOptions, OutputOptions):
    """What the options hold of a command that asks about a model and the catalogue."""

    offers: Path | None
    """The user's own machines and prices."""


def read_inputs(
    model: str,
    options: InputsOptions,
    *,
    precisions: Iterable[Precision],
    machine: Machine,
    curves: Iterable[Path] = (),
    pricebook: Path | None = None,
) -> Inputs:
    """Return the Profile of the model and the catalogue, as the shared options ask for.

    Args:
        model: The model as it was typed.
        options: How its file is read.
        precisions: Those that will be asked about.
        machine: Names to check against the catalogue at once.
        curves: The user's own curve files.
        pricebook: The user's own terms.
    """
    from ... import api
    from ...profiles.user_model.spec import parse_params
    from ..terminal.notices import show_output_of_file, warnings_to_stderr

    quiet = options.quiet
    with warnings_to_stderr(quiet=quiet), progress(f"Tracing {model} …", quiet=quiet) as say:
        return api.read_inputs(
            model,
            params=parse_params(options.params),
            lora=options.lora,
            inputs=options.inputs,
            assume=options.assumed,
            precisions=precisions,
            machine=machine,
            offers=options.offers,
            pricebook=pricebook,
            curves=curves,
            timeout_s=options.timeout,
            use_cache=not options.no_cache,
            on_output=show_output_of_file if options.verbose else None,
            on_slow=say,
        )
