"""What gpuplan's runner would train on, in words, and what of it is refused. Pure."""

from __future__ import annotations

from ..catalog.errors import UsageError
from ..profiles.user_model.data_source import DataSource, data_source
from ..profiles.user_model.spec import ModelSpec

SHOUTED = "SYNTHETIC batches"
"""On the screen of a launch, which is asked about."""


def local_data(spec: ModelSpec, *, synthetic: bool) -> str:
    """Return what a run on this machine trains on, in words for the user.

    Args:
        spec: the model.
        synthetic: whether synthetic batches are asked for.

    Raises:
        UsageError: a Lightning file's loader would be read as a few fixed batches.
    """
    source = data_source(spec)
    _refuse_loader(spec, source, synthetic=synthetic)
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
    _refuse_loader(spec, source, synthetic=synthetic)
    if source.kind == "synthetic" and not (synthetic or smoke):
        raise UsageError(
            f"This would train on synthetic batches, on machines that are paid for: {source.why}.",
            fix="write build_dataset() beside build_model() (docs/model-file.md), give --command"
            " with a training script of your own, or --synthetic if that is what you want.",
        )
    words = _words(source, synthetic=synthetic, called=SHOUTED)
    return f"{words}; {amount}" if amount and source.kind == "dataset" and not synthetic else words


def _refuse_loader(spec: ModelSpec, source: DataSource, *, synthetic: bool) -> None:
    if source.kind != "loader" or synthetic:
        return
    raise UsageError(
        f"gpuplan's runner does not train a LightningModule on its loader: {source.why}, without"
        " its schedule, validation or callbacks.",
        fix="train it with its own Trainer: --command with the script that calls fit(), and"
        f" --framework lightning; or write build_model() and build_dataset() in {spec.path.name}."
        " --synthetic trains on those few batches anyway.",
    )


def _words(source: DataSource, *, synthetic: bool, called: str) -> str:
    may_have = source.kind in ("dataset", "unknown")
    if may_have and not synthetic:
        return source.why
    return f"{called}: {'--synthetic' if may_have else source.why}"
