"""The weights that a run starts from: read once, before its first step, into any layout.

    def pretrained_weights():  # of the model file; --weights takes its place
        return "llama-3.2-1b"

The model is built and spread as without them. Each rank then reads the slices that it holds, so
nothing is sent and no rank has a copy of the whole: see `reading.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from ....catalog.errors import GpuplanError, UserFileError
from ....profiles.user_model.checks import described
from ....profiles.user_model.workload import Workload, bound_function
from ..job import Job
from ..processes.error_text import first_line
from ..processes.processes import Processes
from ..reporting.metrics import say
from .files import stored_tensors
from .names import NAMES_SHOWN, Matched, ModelNames, matched
from .reading import read_into

FUNCTION = "pretrained_weights"
KEYS = {"path", "allow_missing", "allow_unexpected"}


@dataclass(frozen=True, kw_only=True)
class PretrainedWeights:
    """Which weights a run starts from, and which names may differ."""

    place: Path
    allow_missing: tuple[str, ...] = ()
    allow_unexpected: tuple[str, ...] = ()


def chosen_weights(job: Job, workload: Workload) -> PretrainedWeights | None:
    """Return the weights that are asked for, else those that the model file names, else None.

    Raises:
        UserFileError: what the file's function returned names no weights.
    """
    training = job.training
    if training.weights is not None:
        return PretrainedWeights(
            place=Path(training.weights),
            allow_missing=training.allow_missing,
            allow_unexpected=training.allow_unexpected,
        )
    function = bound_function(workload, FUNCTION, reserved=0)
    if function is None:
        return None
    named = _named(function())
    assert workload.path is not None, "a function stands in a file"
    return PretrainedWeights(
        place=workload.path.parent / Path(named.pop("path")).expanduser(),
        **{key: tuple(patterns) for key, patterns in named.items()},
    )


def load_pretrained(
    model: nn.Module, names: ModelNames, weights: PretrainedWeights, processes: Processes
) -> Matched:
    """Read weights into a model that is spread over the processes, on its device.

    Memory: none beside the model. Each rank copies the slices that it holds out of mapped files,
    whose pages the ranks of a node share in the page cache.

    Args:
        model: as this rank holds it: whole, sharded, split, or some of its pipeline stages.
        names: of the whole model, taken before it was spread.
        weights: which, and what may differ.
        processes: of which the first says what was read.

    Raises:
        UsageError: the files cannot be read, or are of another model.
    """
    stored = stored_tensors(weights.place)
    found = matched(
        names,
        stored,
        place=str(weights.place),
        allow_missing=weights.allow_missing,
        allow_unexpected=weights.allow_unexpected,
    )
    held = {
        name: value
        for name, value in get_model_state_dict(model).items()
        if isinstance(value, Tensor) and name in found.stored
    }
    try:
        read_into(held, found.stored)
    except (OSError, RuntimeError, ValueError) as error:
        raise GpuplanError(
            f"The weights in {weights.place} could not be read: {first_line(error)}",
            fix="check that the files are whole.",
        ) from None
    if processes.is_first:
        say(f"weights: {_words(weights.place, found)}")
    return found


def _words(place: Path, found: Matched) -> str:
    count = len(found.stored)
    parts = [f"{count:,} tensor{'' if count == 1 else 's'} of {os.path.relpath(place)}"]
    parts += [found.renamed] if found.renamed else []
    for names, one, several in (
        (found.begun_anew, "begins anew", "begin anew"),
        (found.left_out, "is left out", "are left out"),
    ):
        if names:
            shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
            parts.append(f"{shown} {one if len(names) == 1 else several}")
    return "; ".join(parts)


def _named(given: Any) -> dict[str, Any]:
    """Return what the file's function named, as a dictionary.

    Raises:
        UserFileError: it is neither a path nor a dictionary with one.
    """
    found = {"path": given} if isinstance(given, str | os.PathLike) else given
    if isinstance(found, Mapping) and "path" in found and set(found) <= KEYS:
        return dict(found)
    raise UserFileError(
        f"{FUNCTION}() returned {described(given)}, which names no weights.",
        fix="return the path of a safetensors file or of a Hugging Face folder, or"
        ' {"path": …, "allow_missing": ["score.*"]}.',
    )
