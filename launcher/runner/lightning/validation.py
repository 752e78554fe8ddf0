"""A LightningModule's own evaluation: `validation_step` on the batches of `val_dataloader`.

What it logs is averaged over all samples, as Lightning does at the end of an epoch. Imports nothing
of Lightning itself.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from ....catalog.errors import UsageError, UserFileError
from ....profiles.user_model.checks import Batch, described
from ....profiles.user_model.forms.lightning_run import LIGHTNING, samples_of
from ....profiles.user_model.workload import Params, Workload, optional_function

STEP, LOADER = "validation_step", "val_dataloader"
LOSS_NAMES = ("val_loss", "val/loss", "valid_loss", "valid/loss", "validation_loss", "loss")
"""What a loss may be logged as; the first of them that is decides which checkpoint is the best."""
MEANS = ("mean", torch.mean)
TRAINER = "or run its own Trainer: --command with --framework lightning."
Log = Callable[..., None]


def has_validation(workload: Workload, model: nn.Module) -> bool:
    """Return whether a model is a file's LightningModule with a `validation_step` of its own."""
    return is_lightning(workload, model) and _is_own(type(model), STEP)


def is_lightning(workload: Workload, model: nn.Module) -> bool:
    """Return whether a model is the LightningModule that a file without `build_model()` has."""
    return (
        any(base.__name__ == "LightningModule" for base in type(model).__mro__)
        and optional_function(workload, "build_model") is None
    )


def validation_samples(workload: Workload, model: nn.Module) -> Any:
    """Return the data set behind `val_dataloader` of the DataModule in the file, or of the module.

    Raises:
        UsageError: neither has one.
        UserFileError: it gives something else than one loader.
    """
    holder = _data_module(workload) or model
    if not _is_own(type(holder), LOADER):
        raise UsageError(
            f"--eval-every is given, and {workload.name} has {STEP}() but no {LOADER}().",
            fix=f"write {LOADER}(), or leave --eval-every out.",
        )
    loader: Any = getattr(holder, LOADER)()
    several = list(loader.values()) if isinstance(loader, Mapping) else loader
    if isinstance(several, list | tuple):
        if len(several) != 1:
            raise UserFileError(
                f"{LOADER}() returned {len(several)} loaders; gpuplan's runner evaluates on one.",
                fix=f"return one, {TRAINER}",
            )
        (loader,) = several
    return samples_of(loader, f"{LOADER}()")


class ValidationMetrics:
    """Calls `validation_step` on a batch, and gives what it logged, and the loss."""

    def __init__(self, samples: Any) -> None:
        """Look at what the batches are of.

        Args:
            samples: of `validation_samples`.
        """
        self._gives_lists = bool(len(samples)) and isinstance(
            samples.collate_fn([samples[0]]), list
        )
        self.batch_number = 0
        """Of the next batch of this process, in its evaluation."""

    def __call__(self, model: nn.Module, batch: Batch) -> Mapping[str, Any]:
        """Return the numbers of a batch by name."""
        step: Callable[..., Any] = model.validation_step  # pyright: ignore[reportAssignmentType]
        given: Any = batch
        if isinstance(batch, tuple) and len(batch) == 1 and not self._gives_lists:
            given = batch[0]
        of_loader = (given, self.batch_number, 0)  # The last is the number of the only loader.
        arguments = of_loader[: len(inspect.signature(step).parameters)]
        self.batch_number += 1
        logged: dict[str, Any] = {}
        with _logging_to(model, logged):
            returned = step(*arguments)
        return {**logged, "loss": _loss(logged, returned)}


def _loss(logged: Mapping[str, Any], returned: Any) -> Any:
    """Return the loss among what was logged, else what was returned.

    Raises:
        UserFileError: neither is one.
    """
    for name in LOSS_NAMES:
        if name in logged:
            return logged[name]
    found = returned.get("loss") if isinstance(returned, Mapping) else returned
    if isinstance(found, Tensor | float):
        return found
    raise UserFileError(
        f"{STEP}() logs no loss under one of {', '.join(LOSS_NAMES)}, and returned"
        f" {described(returned)}.",
        fix='log it, self.log("val_loss", loss), or return it.',
    )


@contextmanager
def _logging_to(model: nn.Module, logged: dict[str, Any]) -> Iterator[None]:
    """Keep what `self.log` and `self.log_dict` are given meanwhile."""

    def log(name: str, value: Any, *_: Any, reduce_fx: Any = "mean", **__: Any) -> None:
        if reduce_fx not in MEANS:
            raise UserFileError(
                f"{STEP}() logs {name!r} with reduce_fx={reduce_fx!r}; here all is averaged.",
                fix=f"log a mean, {TRAINER}",
            )
        if not isinstance(value, Tensor | int | float):
            raise UserFileError(
                f"{STEP}() logs {name!r} as {described(value)}; numbers and tensors of one element"
                " are averaged here, and no other metric is.",
                fix=f"log the number of the batch, {TRAINER}",
            )
        logged[name] = value

    def log_dict(values: Mapping[str, Any], *arguments: Any, **named: Any) -> None:
        for name, value in values.items():
            log(name, value, *arguments, **named)

    earlier = {name: vars(model).get(name) for name in ("log", "log_dict")}
    object.__setattr__(model, "log", log)
    object.__setattr__(model, "log_dict", log_dict)
    try:
        yield
    finally:
        for name, one in earlier.items():
            object.__setattr__(model, name, one)


def _data_module(workload: Workload) -> Any:
    """Return the LightningDataModule of the file, set up; None where it gives no evaluation."""
    module = _module_of(workload)
    for one in [] if module is None else vars(module).values():
        is_its_own = isinstance(one, type) and one.__module__ == getattr(module, "__name__", None)
        bases = [base.__name__ for base in one.__mro__[1:]] if is_its_own else []
        if "LightningDataModule" in bases and _is_own(one, LOADER):
            holder = Params(workload.params).bind(one)()
            holder.prepare_data()
            holder.setup("fit")
            return holder
    return None


def _module_of(workload: Workload) -> ModuleType | None:
    for module in list(sys.modules.values()):
        if workload.path and getattr(module, "__file__", None) == str(workload.path):
            return module
    return None


def _is_own(one: type, name: str) -> bool:
    """Return whether a class has a method that is not Lightning's own, which only refuses."""
    for base in one.__mro__:
        if name in vars(base):
            return base.__module__.split(".")[0] not in LIGHTNING
    return False
