"""What gpuplan's runner would train on, in words, and what of a model file is refused."""

from __future__ import annotations

import contextlib

from ..catalog.errors import UsageError, UserFileError
from ..profiles.user_model.data_source import DataSource, data_source
from ..profiles.user_model.file_text import read_source
from ..profiles.user_model.spec import ModelSpec

SHOUTED = "SYNTHETIC batches"
"""On the screen of a launch, which is asked about."""

OWN_LOOP = (
    "in gpuplan's own loop, which validates with --eval-every alone (for its own Trainer give"
    " --command and --framework lightning)"
)


def refuse_unreadable_source(spec: ModelSpec) -> None:
    """Refuse a model file that no process could import, before one is started.

    Raises:
        UsageError: it cannot be opened.
        UserFileError: it is empty, not Python, or made with another framework.
    """
    if spec.kind != "file":
        return
    with contextlib.suppress(OSError):
        if b"\0" in spec.path.read_bytes():
            raise UserFileError(
                f"{spec.path.name} is not a Python file: it holds null bytes.",
                fix="give a .py file with build_model() and make_batch(), as `gpuplan init` writes"
                " one.",
            )
    read_source(spec.path)


def local_data(spec: ModelSpec, *, synthetic: bool) -> str:
    """Return what a run on this machine trains on, in words for the user.

    Args:
        spec: the model.
        synthetic: whether synthetic batches are asked for.

    Raises:
        UsageError: a Trainer of Lightning would run more than gpuplan's runner does.
    """
    source = data_source(spec)
    _refuse_hooks(spec, source)
    return _words(source, synthetic=synthetic, called="synthetic batches")


def launched_data(
    spec: ModelSpec,
    *,
    synthetic: bool,
    smoke: bool,
    amount: str | None = None,
) -> str:
    """Return what a launch trains on, in words for the user.

    Args:
        spec: the model.
        synthetic: whether synthetic batches are asked for.
        smoke: whether only the first steps run, which learn nothing that is kept.
        amount: how much of a data set the steps are, in words; None where nobody knows.

    Raises:
        UsageError: machines would be paid for to train on synthetic batches that nobody asked for.
    """
    source = data_source(spec)
    _refuse_hooks(spec, source)
    if source.kind == "synthetic" and not (synthetic or smoke):
        raise UsageError(
            f"This would train on synthetic batches, on machines that are paid for: {source.why}.",
            fix=f"{_own_data(spec)}, give --command with a training script of your own, or"
            " --synthetic if that is what you want.",
        )
    words = _words(source, synthetic=synthetic, called=SHOUTED)
    return (
        f"{words}; {amount}"
        if amount and source.kind in ("dataset", "loader") and not synthetic
        else words
    )


def _own_data(spec: ModelSpec) -> str:
    """Return what to write so that a run has data of its own."""
    if spec.kind == "hf":
        return "write a model file with build_model() and build_dataset(), as examples/finetune.py"
    return "write build_dataset() beside build_model() (docs/model-file.md)"


def _refuse_hooks(spec: ModelSpec, source: DataSource) -> None:
    if not source.not_run:
        return
    raise UsageError(
        f"{spec.path.name} has what a Trainer of Lightning runs and gpuplan's runner does not:"
        f" {', '.join(source.not_run)}.",
        fix="train it with its own Trainer: --command with the script that calls fit(), and"
        " --framework lightning; or leave these out.",
    )


def _words(source: DataSource, *, synthetic: bool, called: str) -> str:
    may_have = source.kind in ("dataset", "loader", "unknown")
    if source.kind == "loader" and not synthetic:
        return f"{source.why}, {OWN_LOOP}"
    if may_have and not synthetic:
        return source.why
    return f"{called}: {'--synthetic' if may_have else source.why}"
