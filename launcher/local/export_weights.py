"""The weights of a run as files that others read: which checkpoint, into which folder, whole."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from ...catalog.errors import GpuplanError, UsageError, did_you_mean
from ..runner.job import JOB_FILE
from ..runner.weights.formats import DTYPES, FORMATS, WeightDtype, WeightFormat
from . import run_folder

NEWEST, BEST = "newest", "best"
MAX_FILE_BYTES = 5_000_000_000
"""As Hugging Face cuts its own files."""
RUN_FILE = "run.json"
EVALUATIONS_FILE = "evaluations.jsonl"


class ExportedWeights(BaseModel):
    """What `gpuplan export-weights` wrote."""

    model_config = ConfigDict(frozen=True)

    schema_version: str = "1.0"
    run: str
    """The folder of the run."""
    checkpoint: str
    step: int
    format: WeightFormat
    folder: str
    files: tuple[str, ...]
    """Their names in the folder."""
    parameters: int
    """Values in all tensors, buffers included, a tied weight counted once."""
    size_bytes: int
    """Of all tensors."""
    dtype: WeightDtype | None
    """What was asked for; null: as they were trained."""
    tied: dict[str, str]
    """Names that were left out, each with the name that has its weight."""


def export_weights(
    run: Path,
    form: WeightFormat,
    *,
    folder: Path | None = None,
    checkpoint: str = NEWEST,
    dtype: WeightDtype | None = None,
    max_file_bytes: int = MAX_FILE_BYTES,
) -> ExportedWeights:
    """Write the weights of a run's checkpoint; the folder has its name only when it is whole.

    Args:
        run: the folder of results, or a checkpoint.
        form: `safetensors`, or `huggingface` for `from_pretrained`.
        folder: for the files, which must not exist or be empty; None: `weights-step-…` in the
            folder of the run.
        checkpoint: `newest`, `best` (of the evaluations), or a step.
        dtype: of floating-point weights: fp32, bf16 or fp16; None: as they were trained.
        max_file_bytes: of the tensors in one file; what is larger is dealt to several.

    Raises:
        UsageError: there is no such run, checkpoint, format or dtype; the folder is in use; or
            `huggingface` is asked for, and the model is none of transformers.
        GpuplanError: the checkpoint is damaged, or the folder cannot be written.
    """
    _check(form, FORMATS, "--to")
    if dtype is not None:
        _check(dtype, DTYPES, "--dtype")
    if max_file_bytes < 1:
        raise UsageError(f"A file of {max_file_bytes} bytes holds nothing.", fix="give 5e9.")
    path = _checkpoint(run, checkpoint)
    facts = _facts(path)
    place = (folder or _results(run) / f"weights-{path.name}").expanduser().absolute()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UsageError(
            f"{run_folder.shown_path(place)} exists and is not empty.",
            fix="give another folder with -o, or remove it.",
        )
    # Imported late: torch is loaded only once all else is in order.
    from ..runner.weights.export import write_export

    scratch = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
    try:
        scratch.mkdir(parents=True)
        written = write_export(
            path,
            scratch,
            facts,
            form=form,
            max_file_bytes=max_file_bytes,
            dtype=dtype,
        )
        scratch.replace(place)
    except OSError as error:
        raise GpuplanError(
            f"The weights could not be written to {run_folder.shown_path(place)}:"
            f" {error.strerror or error}.",
            fix="free space there, or give another folder with -o.",
        ) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return ExportedWeights(
        run=str(run),
        checkpoint=str(path),
        step=run_folder.step_of(path),
        format=form,
        folder=str(place),
        files=tuple(one.name for one in written.files),
        parameters=written.parameters,
        size_bytes=written.size_bytes,
        dtype=dtype,
        tied=written.tied,
    )


def _check(given: str, known: tuple[str, ...], option: str) -> None:
    if given not in known:
        raise UsageError(
            f"{option} {given!r} is not known.{did_you_mean(given, known)}",
            fix=f"use one of {', '.join(known)}.",
        )


def _results(run: Path) -> Path:
    """Return the folder of results of a run, or that which holds a checkpoint's folder."""
    if not (run / RUN_FILE).is_file():
        return run
    above = run.absolute().parent
    return above.parent if above.name == "checkpoints" else above


def _checkpoint(run: Path, asked: str) -> Path:
    """Return the checkpoint that is asked for.

    Raises:
        UsageError: there is none.
    """
    if (run / RUN_FILE).is_file():
        return run
    folder = _checkpoints(run)
    found = run_folder.checkpoints(folder)
    if not found:
        raise UsageError(
            f"{run} has no whole checkpoint.",
            fix="give the folder of results that `gpuplan run` named, or a folder step-… of its"
            " checkpoints.",
        )
    if asked == NEWEST:
        return found[-1]
    by_step = {run_folder.step_of(path): path for path in found}
    step = _best_step(run, by_step) if asked == BEST else _step(asked)
    if step in by_step:
        return by_step[step]
    raise UsageError(
        f"{run} has no checkpoint of step {step}; it has those of {', '.join(map(str, by_step))}.",
        fix=f"give --checkpoint {run_folder.step_of(found[-1])} or newest"
        + ("." if asked == BEST else ", or best."),
    )


def _checkpoints(run: Path) -> Path:
    """Return the folder of a run's checkpoints."""
    inside = run / "checkpoints"
    if inside.is_dir():
        return inside
    job = run_folder.read_json(run / "job" / JOB_FILE) or {}
    folder = (job.get("checkpoint") or {}).get("folder")
    return Path(folder) if folder else run


def _step(asked: str) -> int:
    digits = asked.removeprefix("step-")
    if digits.isdigit():
        return int(digits)
    raise UsageError(
        f"--checkpoint {asked!r} is no checkpoint.", fix="give newest, best, or a step: 200."
    )


def _best_step(run: Path, whole: Collection[int]) -> int:
    """Return the step of the best evaluation whose checkpoint is whole, else of the best at all.

    A run that was killed may have written an evaluation, and not yet the checkpoint of it.
    """
    best = [step for line in _evaluations(run) if isinstance(step := line.get("best_step"), int)]
    if not best:
        raise UsageError(
            f"{run} has no evaluation, so no checkpoint of it is the best.",
            fix="train with --eval-every, or give --checkpoint newest.",
        )
    return next((step for step in reversed(best) if step in whole), best[-1])


def _evaluations(run: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the evaluations of a run, oldest first; lines that are torn or damaged are left out."""
    try:
        text = (run / EVALUATIONS_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                yield found


def _facts(checkpoint: Path) -> Mapping[str, Any]:
    found = run_folder.read_json(checkpoint / RUN_FILE)
    if found is None:
        raise GpuplanError(
            f"{checkpoint / RUN_FILE} is damaged.",
            fix="export another checkpoint of the run with --checkpoint.",
        )
    return found
