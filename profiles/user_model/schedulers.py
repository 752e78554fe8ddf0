"""Learning-rate schedules of a model file, and when each of them steps.

Needs only the standard library and torch, because the runner carries this file to the instances.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ...catalog.errors import UserFileError
from .checks import described

Interval = Literal["step", "epoch"]
INTERVALS = ("step", "epoch")
SchedulerFunction = Callable[[torch.optim.Optimizer, int], "tuple[Stepped, ...]"]


@dataclass(frozen=True)
class Stepped:
    """A schedule, and how often it steps."""

    scheduler: Any
    """Of torch.optim.lr_scheduler, or like one: `step`, `state_dict`, `load_state_dict`."""
    interval: Interval = "step"
    frequency: int = 1
    """It steps after so many of these."""


def checked_scheduler(scheduler: Any, source: str) -> Any:
    """Return a schedule that can be stepped and kept.

    Raises:
        UserFileError: it is none, or one that waits for a number of the evaluation.
    """
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise UserFileError(
            f"{source} returned a ReduceLROnPlateau, which steps by a number of the evaluation.",
            fix="use a schedule that depends on the step alone, or your own loop with --command.",
        )
    if all(callable(getattr(scheduler, one, None)) for one in _NEEDED):
        return scheduler
    raise UserFileError(
        f"{source} returned {described(scheduler)}, not a learning-rate schedule.",
        fix="return for example torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps).",
    )


_NEEDED = ("step", "state_dict", "load_state_dict")


def bind_scheduler(bound: Callable[..., Any]) -> SchedulerFunction:
    """Return the file's `build_scheduler`, whose params are bound, with its result checked.

    It returns one schedule, or several: one for each optimizer.
    """

    def build(optimizer: torch.optim.Optimizer, steps: int) -> tuple[Stepped, ...]:
        found = bound(optimizer, steps)
        several = found if isinstance(found, list | tuple) and found else (found,)
        return tuple(Stepped(checked_scheduler(one, "build_scheduler()")) for one in several)

    return build


def configured_schedulers(configured: Any) -> tuple[Stepped, ...]:
    """Return the schedules in what a LightningModule's configure_optimizers returned.

    Raises:
        UserFileError: a schedule is of a kind, or has settings, that gpuplan's runner has not.
    """
    if isinstance(configured, Mapping):
        found = configured.get("lr_scheduler")
        return () if found is None else (_stepped(found),)
    if not isinstance(configured, Sequence) or not configured:
        return ()
    if all(isinstance(one, Mapping) for one in configured):
        return tuple(one for each in configured for one in configured_schedulers(each))
    parts = [one for one in configured if isinstance(one, list | tuple)]
    return tuple(_stepped(one) for one in parts[1]) if len(parts) > 1 else ()


def _stepped(given: Any) -> Stepped:
    source = "configure_optimizers()"
    if not isinstance(given, Mapping):
        return Stepped(checked_scheduler(given, source), "epoch")
    interval, frequency = given.get("interval", "epoch"), given.get("frequency", 1)
    if interval not in INTERVALS or not isinstance(frequency, int) or frequency < 1:
        raise UserFileError(
            f"{source} returned a schedule with the interval {interval!r} and the frequency"
            f" {frequency!r}.",
            fix="write 'step' or 'epoch', and a whole number of 1 or more.",
        )
    return Stepped(checked_scheduler(given.get("scheduler"), source), interval, frequency)
