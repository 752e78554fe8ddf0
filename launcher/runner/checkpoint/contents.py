"""What a checkpoint holds: tensors that are read back under any layout, and small state beside.

The tensors are written by every rank; the small state (how far streams were read, schedules, what
the user's file keeps) by the first one, in a file that is read without running anything of it.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict as torch_state
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)

from ....profiles.user_model.several_optimizers import parts_of
from ..processes.error_text import first_line
from ..training.numerics import LossScaler

SMALL_FILE = "state.pt"
STATE = "optimizer.state."
OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)


class SmallState(Protocol):
    """Something beside the weights that a run needs to go on."""

    def state(self) -> Any:
        """Return it as numbers, words, lists, dictionaries and tensors."""
        ...

    def restore(self, state: Any) -> None:
        """Take it back."""
        ...


class OwnTensors(Protocol):
    """Tensors beside the model's, such as an average of its weights."""

    def tensors(self) -> dict[str, Tensor]:
        """Return them by name, as this rank holds them."""
        ...

    def restore_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take them back."""
        ...


@dataclass(frozen=True, kw_only=True)
class Contents:
    """All that a checkpoint is made of, and read back into."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: LossScaler | None = None
    small: Mapping[str, SmallState] = field(default_factory=dict)
    own: OwnTensors | None = None

    def tensors(self) -> dict[str, Any]:
        """Return the tensors of this rank under the names of the model; nothing changes by it."""
        found: dict[str, Any] = {}
        if self._trains:
            with _no_step_of_torch(), _no_empty_groups(self.optimizer):
                found["model"], found["optimizer"] = get_state_dict(
                    self.model, self.optimizer, options=OPTIONS
                )
        else:
            found["model"] = get_model_state_dict(self.model, options=OPTIONS)
        own = {} if self.own is None else self.own.tensors()
        return found | ({"own": own} if own else {})

    @property
    def _trains(self) -> bool:
        """Whether this rank trains anything: a pipeline stage may be frozen as a whole."""
        return any(group["params"] for group in self.optimizer.param_groups)

    def room(self, names: frozenset[str]) -> dict[str, Any]:
        """Return tensors to read a checkpoint of these names into.

        An optimizer that has no state yet gets it by a step on gradients of zero, whose changes of
        weights are read over; one whose checkpoint has none does not, nor do parameters that had
        none when it was written, as those that never got a gradient.
        """
        has_state = any(name.startswith(STATE) for name in names)
        if has_state and self._trains and not self.optimizer.state:
            with _quiet_hooks(self.optimizer):
                torch_state._init_optim_state(self.optimizer)
            self._forget_state_beyond(names)
        return self.tensors()

    def _forget_state_beyond(self, names: frozenset[str]) -> None:
        """Drop the state of parameters that have none under these names."""
        parts = [name.removeprefix(STATE).split(".") for name in names if name.startswith(STATE)]
        # A state may itself hold names: every beginning of one may be the parameter's.
        with_state = {".".join(one[:n]) for one in parts for n in range(1, len(one))}
        named: dict[Tensor, set[str]] = {}  # A tied weight has its state under one of its names.
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            named.setdefault(parameter, set()).update(torch_state._get_fqns(self.model, name))
        for parameter, its_names in named.items():
            if with_state.isdisjoint(its_names):
                self.optimizer.state.pop(parameter, None)

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Take the tensors of a checkpoint back."""
        if not self._trains:
            set_model_state_dict(self.model, tensors["model"], options=OPTIONS)
        else:
            with _no_step_of_torch(), _no_empty_groups(self.optimizer):
                set_state_dict(
                    self.model,
                    self.optimizer,
                    model_state_dict=tensors["model"],
                    optim_state_dict=tensors["optimizer"],
                    options=OPTIONS,
                )
        if self.own is not None:
            self.own.restore_tensors(tensors.get("own", {}))

    def small_state(self) -> dict[str, Any]:
        """Return the small state of this process."""
        return {name: one.state() for name, one in self.small.items()}

    def restore_small(self, state: Mapping[str, Any]) -> None:
        """Take the small state back; what an older checkpoint lacks stays as it is."""
        for name, one in self.small.items():
            if name in state:
                one.restore(state[name])


def write_small(folder: Path, state: Mapping[str, Any]) -> int:
    """Write the small state into a checkpoint that has no name yet; return its size in bytes."""
    path = folder / SMALL_FILE
    with path.open("wb") as file:
        torch.save(dict(state), file)
        file.flush()
        os.fsync(file.fileno())
    return path.stat().st_size


def read_small(folder: Path) -> dict[str, Any]:
    """Return the small state of a checkpoint, nothing of which is run; {} where it has none.

    Raises:
        ValueError: it is damaged, or holds more than data.
    """
    path = folder / SMALL_FILE
    if not path.exists():
        return {}
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except UnpicklingError:
        # torch's own words advise to read it by running what it holds.
        raise ValueError(f"{SMALL_FILE}: it is damaged, or holds more than data") from None
    except Exception as error:  # A damaged file fails in whatever way its reader has.
        raise ValueError(f"{SMALL_FILE}: {first_line(error)}") from None
    if not isinstance(state, dict):
        raise ValueError(f"{SMALL_FILE}: it holds no names")
    return state


@contextmanager
def _no_step_of_torch() -> Iterator[None]:
    """Keep torch from stepping an optimizer without state, to give it some.

    It would call the hooks of the step, and decay that does not depend on the learning rate.
    """
    kept = torch_state._init_optim_state
    torch_state._init_optim_state = lambda _optimizer: None
    try:
        yield
    finally:
        torch_state._init_optim_state = kept


@contextmanager
def _no_empty_groups(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Take groups without a parameter, as a pipeline stage may have, out of an optimizer inside.

    torch finds the settings of a group in a checkpoint by the first parameter of it.
    """
    kept = [(one, list(one.param_groups)) for one in parts_of(optimizer)]
    for one, groups in kept:
        one.param_groups = [group for group in groups if group["params"]]
    try:
        yield
    finally:
        for one, groups in kept:
            whole = iter(list(one.param_groups))  # Others than before, if they were read.
            one.param_groups = [next(whole) if group["params"] else group for group in groups]


@contextmanager
def _quiet_hooks(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Call none of the hooks of an optimizer's step inside."""
    names = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
    all_of_them = {optimizer, *parts_of(optimizer)}
    kept = [(one, name, getattr(one, name)) for one in all_of_them for name in names]
    for one, name, _ in kept:
        setattr(one, name, OrderedDict())
    try:
        yield
    finally:
        for one, name, hooks in kept:
            setattr(one, name, hooks)
