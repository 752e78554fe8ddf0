"""Several optimizers of one loss as one: torch's checkpoints, schedules and scalers take it so.

Needs only the standard library and torch, because the runner carries this file to the instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor

from ...catalog.errors import UserFileError
from .checks import described


class Optimizers(torch.optim.Optimizer):
    """Several optimizers that step together, each its own parameters.

    Its groups are theirs, in their order, and its state is theirs; iterating over it gives them.
    """

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        # No __init__ of torch's, which would make groups of its own; this sets up its hooks.
        self._parts = tuple(parts)
        self.__setstate__({"defaults": {}})

    def __iter__(self) -> Iterator[torch.optim.Optimizer]:
        """Return them one after another."""
        return iter(self._parts)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._parts)

    def __getitem__(self, place: int) -> torch.optim.Optimizer:
        """Return one of them."""
        return self._parts[place]

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy is made of."""
        return {"defaults": self.defaults, "_parts": self._parts}

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The groups of all of them, as they are."""
        return [group for part in self._parts for group in part.param_groups]

    @property
    def state(self) -> MutableMapping[Any, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The state of all of them, as it is."""
        return _States(self._parts)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take one step with each; a closure is called once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self._parts:
            part.step()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Give each of them its groups and its state back."""
        groups, state = iter(state_dict["param_groups"]), state_dict["state"]
        for part in self._parts:
            own = [next(groups) for _ in part.param_groups]
            places = [place for group in own for place in group["params"]]
            kept = {place: state[place] for place in places if place in state}
            part.load_state_dict({"state": kept, "param_groups": own})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse: it is not said which of them would train it."""
        raise TypeError("add the group to one of the optimizers: optimizer[0].add_param_group(…)")


class _States(MutableMapping[Any, Any]):
    """The states of several optimizers, looked at as one mapping of parameters."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self._parts = parts

    def __getitem__(self, key: Any) -> Any:
        return self._holder(key).state[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        for part in self._parts:
            if any(key is one for group in part.param_groups for one in group["params"]):
                part.state[key] = value
                return
        raise KeyError(key)

    def __delitem__(self, key: Any) -> None:
        del self._holder(key).state[key]

    def __iter__(self) -> Iterator[Any]:
        return (key for part in self._parts for key in part.state)

    def __len__(self) -> int:
        return sum(len(part.state) for part in self._parts)

    def _holder(self, key: Any) -> torch.optim.Optimizer:
        for part in self._parts:
            # A state is a defaultdict: asked for a key that it has not, it would make one.
            if key in part.state:
                return part
        raise KeyError(key)


def as_one_optimizer(returned: Any) -> torch.optim.Optimizer:
    """Return what a file's build_optimizer() returned, several as one.

    Raises:
        UserFileError: it is no optimizer, two of them train the same parameter, or one computes the
            loss itself.
    """
    if isinstance(returned, torch.optim.Optimizer):
        _refuse_closure(returned)
        return returned
    parts: list[Any] = list(returned) if isinstance(returned, list | tuple) else []
    if not parts or not all(isinstance(one, torch.optim.Optimizer) for one in parts):
        wrong = [one for one in parts if not isinstance(one, torch.optim.Optimizer)]
        inside = f" with {described(wrong[0])} in it" if wrong else ""
        raise UserFileError(
            f"build_optimizer() returned {described(returned)}{inside}, not a"
            " torch.optim.Optimizer.",
            fix="return for example torch.optim.AdamW(parameters, lr=1e-4), or several optimizers,"
            " each of its own parameters.",
        )
    _refuse_shared(parts)
    for one in parts:
        _refuse_closure(one)
    return parts[0] if len(parts) == 1 else Optimizers(parts)


def parts_of(optimizer: torch.optim.Optimizer) -> tuple[torch.optim.Optimizer, ...]:
    """Return the optimizers that one is made of; itself where it is a single one."""
    return tuple(optimizer) if isinstance(optimizer, Optimizers) else (optimizer,)


def optimizer_name(optimizer: torch.optim.Optimizer) -> str:
    """Return the class of an optimizer, of several with a plus between them."""
    return "+".join(type(one).__name__ for one in parts_of(optimizer))


def _refuse_closure(optimizer: torch.optim.Optimizer) -> None:
    """Refuse one such as LBFGS, whose step runs the model as often as it takes."""
    closure = signature(type(optimizer).step).parameters.get("closure")
    if closure is None or closure.default is not Parameter.empty:
        return
    name = type(optimizer).__name__
    raise UserFileError(
        f"build_optimizer() returned {name}, whose step runs the model several times: how often"
        " depends on the values.",
        fix="return another for the estimate, such as torch.optim.Adam(parameters): its time for a"
        f" step is that of one evaluation of {name}, which keeps up to history_size copies of the"
        " gradients beside.",
    )


def _refuse_shared(parts: Sequence[torch.optim.Optimizer]) -> None:
    trained_by: dict[Tensor, int] = {}
    for number, part in enumerate(parts):
        for group in part.param_groups:
            for one in group["params"]:
                if trained_by.setdefault(one, number) != number:
                    raise UserFileError(
                        f"Two of the {len(parts)} optimizers of build_optimizer() train the same"
                        f" parameter, of the shape {tuple(one.shape)}: a step would move it twice.",
                        fix="give each parameter to one of them.",
                    )
