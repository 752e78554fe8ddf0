"""State of the user's own beside weights and optimizer, kept in checkpoints.

    def extra_state(model, optimizer):
        return Average(model)  # state_dict(), load_state_dict(state), and after_step(step) if any

Tensors in it are kept as the weights are, each rank its part, so that an average of sharded weights
is read back under any layout. All else is of the first process, and may be numbers, words, lists
and dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ....catalog.errors import UserFileError
from ....profiles.user_model.checks import described
from ....profiles.user_model.workload import Workload, bound_function

FUNCTION = "extra_state"
SEPARATOR = "/"
Plain = dict[str, Any]


class OwnState:
    """What a file's `extra_state()` returned, taken apart into tensors and the rest."""

    def __init__(self, own: Any) -> None:
        self._own = own
        self._read: Mapping[str, Tensor] = {}
        self._after_step: Callable[[int], Any] | None = getattr(own, "after_step", None)

    def after_step(self, step: int) -> None:
        """Tell it that a step is done.

        Args:
            step: steps that are done.
        """
        if self._after_step is not None:
            with torch.no_grad():
                self._after_step(step)

    def tensors(self) -> dict[str, Tensor]:
        """Return its tensors by name, as this rank holds them."""
        tensors, _ = taken_apart(self._own.state_dict())
        return tensors

    def restore_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Keep tensors that were read, until the rest comes."""
        self._read = tensors

    def state(self) -> Plain:
        """Return the rest."""
        _, plain = taken_apart(self._own.state_dict())
        return plain

    def restore(self, state: Plain) -> None:
        """Give all of it back."""
        if set(self._read) >= set(self.tensors()):
            self._own.load_state_dict(put_together(self._read, state))


def open_own_state(
    workload: Workload, model: nn.Module, optimizer: torch.optim.Optimizer
) -> OwnState | None:
    """Return the state of a file that has `extra_state()`; None of any other.

    Args:
        workload: of the file.
        model: as it is spread over the processes.
        optimizer: of its parameters.

    Raises:
        UserFileError: it returned nothing that can be kept.
    """
    function = bound_function(workload, FUNCTION, reserved=2)
    if function is None:
        return None
    own = function(model, optimizer)
    if all(callable(getattr(own, one, None)) for one in ("state_dict", "load_state_dict")):
        return OwnState(own)
    raise UserFileError(
        f"{FUNCTION}() returned {described(own)}, which has no state_dict() and load_state_dict().",
        fix="return an object with both, such as an average of the weights.",
    )


def taken_apart(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], Plain]:
    """Return (the tensors of a nested dictionary by path, the dictionary without them).

    >>> taken_apart({"seen": 3, "mean": {"weight": torch.zeros(2)}})
    ({'mean/weight': tensor([0., 0.])}, {'seen': 3, 'mean': {}})
    """
    tensors: dict[str, Tensor] = {}
    plain: Plain = {}
    for name, value in state.items():
        if isinstance(value, Tensor):
            tensors[name] = value
        elif isinstance(value, Mapping):
            inner, rest = taken_apart(value)
            tensors |= {f"{name}{SEPARATOR}{path}": tensor for path, tensor in inner.items()}
            plain[name] = rest
        else:
            plain[name] = value
    return tensors, plain


def put_together(tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested dictionary that `taken_apart` took apart."""
    whole = {
        name: put_together({}, value) if isinstance(value, Mapping) else value
        for name, value in plain.items()
    }
    for path, tensor in tensors.items():
        place = whole
        *folders, name = path.split(SEPARATOR)
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = tensor
    return whole
