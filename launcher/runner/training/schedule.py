"""Learning-rate schedules: the file's own, or a warm-up and a decay that the user asks for."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from ....catalog.errors import UsageError
from ....profiles.user_model.schedulers import Stepped
from ....profiles.user_model.workload import Workload
from ..training_options import COSINE, LINEAR, TrainingOptions

STEPS, COUNTED, SKIPPED = "steps_of_run", "last_epoch", "skipped_steps"
"""Keys of a schedule's state: the steps that it was made for; how often it has stepped; in how many
steps it could not, since they changed no weight."""
OF_GROUPS = ("base_lrs", "_last_lr")
"""Lists of a schedule's state with a number for each parameter group, which layouts split."""


def factor(step: int, *, steps: int, warmup_steps: int, shape: str | None) -> float:
    """Return what the learning rate of a step is multiplied by.

    >>> [factor(step, steps=10, warmup_steps=4, shape="linear") for step in (0, 3, 4, 7)]
    [0.25, 1.0, 1.0, 0.5]

    Args:
        step: counted from 0.
        steps: of the run.
        warmup_steps: of which the last has the whole rate.
        shape: of the decay to 0 after them; None or "constant" for none.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    done = min(1.0, (step - warmup_steps) / max(1, steps - warmup_steps))
    if shape == LINEAR:
        return 1.0 - done
    # Loshchilov and Hutter 2017 (arXiv:1608.03983), equation 5, without restarts, down to 0.
    return 0.5 * (1.0 + math.cos(math.pi * done)) if shape == COSINE else 1.0


def open_schedule(
    workload: Workload,
    optimizer: torch.optim.Optimizer,
    options: TrainingOptions,
    *,
    steps: int,
    steps_per_epoch: int | None,
) -> Schedule:
    """Return the schedule of a run; one of no parts where the rate is constant.

    Args:
        workload: whose own schedule it is, if it has one.
        optimizer: of this rank, its groups as they stay.
        options: what the user asks for.
        steps: of the whole run.
        steps_per_epoch: None where there are no epochs, or nobody knows their length.

    Raises:
        UsageError: the file has a schedule, and another one is asked for.
    """
    asked = options.schedule is not None or options.warmup_steps > 0
    parts: Sequence[Stepped] = ()
    if workload.build_scheduler is not None:
        parts = workload.build_scheduler(optimizer, steps)
    if parts and asked:
        raise UsageError(
            f"{workload.name} makes a learning-rate schedule of its own, and --schedule or --warmup"
            " asks for another.",
            fix="leave the options out, or the schedule in the file.",
        )
    if asked:
        # A partial function would be kept in checkpoints; this is a function of the step alone.
        def of_step(step: int) -> float:
            return factor(
                step, steps=steps, warmup_steps=options.warmup_steps, shape=options.schedule
            )

        parts = (Stepped(LambdaLR(optimizer, of_step)),)
    if steps_per_epoch is None and any(one.interval == "epoch" for one in parts):
        raise UsageError(
            f"A schedule of {workload.name} steps once an epoch, and nobody knows how long an epoch"
            " of its data is.",
            fix="let it step with 'interval': 'step', or give the data set a length.",
        )
    return Schedule(parts, steps_per_epoch or 1, steps=steps, optimizer=optimizer)


class Schedule:
    """The schedules of a run, stepped together; part of its checkpoints."""

    def __init__(
        self,
        parts: Sequence[Stepped],
        steps_per_epoch: int,
        *,
        steps: int,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self._parts = parts
        self._steps_per_epoch = steps_per_epoch
        self._steps = steps
        self._optimizer = optimizer
        self._skipped = 0
        """Steps that changed no weight."""
        self._first_rates = [deepcopy(group.get("lr")) for group in optimizer.param_groups]

    def after_step(self, step: int, *, skipped: bool = False) -> None:
        """Set the rate of the next step.

        Args:
            step: steps that are done.
            skipped: whether the last one changed no weight, as fp16 does where gradients overflow:
                what steps with the optimizer then waits, what steps with the data does not.
        """
        self._skipped += skipped
        for one in self._parts:
            if one.interval == "epoch":
                is_due = step % (one.frequency * self._steps_per_epoch) == 0
            else:
                is_due = not skipped and (step - self._skipped) % one.frequency == 0
            if is_due:
                one.scheduler.step()

    def state(self) -> list[dict[str, Any]]:
        """Return the state of every part."""
        of_run = {STEPS: self._steps, SKIPPED: self._skipped}
        return [{**one.scheduler.state_dict(), **of_run} for one in self._parts]

    def restore(self, state: Sequence[dict[str, Any]]) -> None:
        """Take it back; another layout may have other parameter groups.

        A schedule keeps the length of the run in its state: where that is another now, it is gone
        through again up to here, not read.
        """
        self._skipped = max((found.get(SKIPPED, 0) for found in state), default=0)
        of_steps = {found.get(STEPS, self._steps) for found in state}
        if of_steps - {self._steps} and all(COUNTED in found for found in state):
            self._go_through([int(found[COUNTED]) for found in state])
            return
        for one, saved in zip(self._parts, state, strict=False):
            found = {name: value for name, value in saved.items() if name not in (STEPS, SKIPPED)}
            now = one.scheduler.state_dict()
            other = {
                name: now[name]
                for name in OF_GROUPS
                if name in now and len(now[name]) != len(found.get(name, ()))
            }
            one.scheduler.load_state_dict({**found, **other})
            self._set_rates_of_empty_groups(one)

    def _set_rates_of_empty_groups(self, part: Stepped) -> None:
        """Give groups without a parameter, which no checkpoint holds, the rate that they had."""
        groups = part.scheduler.optimizer.param_groups
        for group, rate in zip(groups, part.scheduler.get_last_lr(), strict=False):
            if not group["params"]:
                group["lr"] = rate

    def _go_through(self, counts: Sequence[int]) -> None:
        """Step every part as often as it has stepped, from the rates that it began with."""
        for group, rate in zip(self._optimizer.param_groups, self._first_rates, strict=True):
            group["lr"] = deepcopy(rate)
        with warnings.catch_warnings():
            # torch warns of a schedule that steps before its optimizer has.
            warnings.simplefilter("ignore", UserWarning)
            for one, count in zip(self._parts, counts, strict=False):
                for _ in range(count):
                    one.scheduler.step()
