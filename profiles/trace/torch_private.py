"""The only file that touches private torch APIs, checked against the version of torch.

The trace needs four things that torch has no public name for: the autograd node that is running,
the number the next node will get, a guard that switches torch-function modes off, and the globals
under which `torch.nn.functional` runs when nothing overrides it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.utils.checkpoint

from ...catalog.errors import GpuplanError

_autograd: Any = torch.autograd
OLDEST_TORCH = (2, 13)
_NEEDED = ("_current_autograd_node", "DisableTorchFunction")


def check_torch() -> None:
    """Check that this torch has what the trace needs.

    Raises:
        GpuplanError: torch is too old, or a later version took a private API away.
    """
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    missing = [f"torch._C.{name}" for name in _NEEDED if not hasattr(torch._C, name)]
    if not hasattr(_autograd, "_get_sequence_nr"):
        missing.append("torch.autograd._get_sequence_nr")
    if version < OLDEST_TORCH or missing:
        lacks = f", which lacks {', '.join(missing)}" if missing else ""
        raise GpuplanError(
            f"tracing needs torch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or a later version that "
            f"keeps the same internals; found torch {torch.__version__}{lacks}.",
            fix=f"pip install 'torch=={OLDEST_TORCH[0]}.{OLDEST_TORCH[1]}.*'",
        )


no_torch_function = torch._C.DisableTorchFunction
"""Context manager: torch functions called inside reach no torch-function mode."""


def next_node_number() -> int:
    """Return the number that the next autograd node of this thread will get."""
    return _autograd._get_sequence_nr()


def running_node_number() -> int | None:
    """Return the number of the autograd node that is running; None outside a backward pass."""
    node = torch._C._current_autograd_node()
    return None if node is None else node._sequence_nr()  # pyright: ignore[reportAttributeAccessIssue]


def running_node_name() -> str | None:
    """Return the name of the autograd node that is running; None outside a backward pass."""
    node = torch._C._current_autograd_node()
    return None if node is None else node.name()  # pyright: ignore[reportAttributeAccessIssue]


_globals: dict[str, dict[str, Any]] = {}
_plain: dict[FunctionType, FunctionType] = {}


def without_overrides(function: FunctionType) -> FunctionType:
    """Return a copy of a Python-level torch function that skips its own torch-function check.

    Torch functions written in Python (`torch.nn.functional.*`) hand themselves over to a mode
    before they run. To see the calls *inside* them, the mode runs this copy while it is active.
    """
    copy = _plain.get(function)
    if copy is None:
        module = function.__module__
        if module not in _globals:
            never = {name: _never for name in function.__globals__ if "has_torch_function" in name}
            _globals[module] = {**function.__globals__, **never}
        copy = FunctionType(
            function.__code__,
            _globals[module],
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        copy.__kwdefaults__ = function.__kwdefaults__
        _plain[function] = copy
        for name in _helpers_that_check(function):
            _globals[module][name] = without_overrides(function.__globals__[name])
    return copy


def _helpers_that_check(function: FunctionType) -> list[str]:
    """Return the private functions of its module that check on behalf of the public one.

    `torch.meshgrid` leaves its check to `_meshgrid`, which would hand `meshgrid` over for ever.
    """
    known = function.__globals__
    private = [name for name in function.__code__.co_names if name.startswith("_")]
    return [
        name
        for name in private
        if isinstance(helper := known.get(name), FunctionType)
        and helper.__globals__ is known
        and any("has_torch_function" in used for used in helper.__code__.co_names)
    ]


def _never(*_: object) -> bool:
    return False


@contextmanager
def without_dynamo() -> Iterator[None]:
    """Keep optimizers and checkpoints from importing torch._dynamo (0.9 s, slower calls after)."""
    name = "torch._dynamo"
    if name in sys.modules:
        yield
        return
    stand_in, finder = _NoDynamo(name), _RealDynamo()
    sys.modules[name] = stand_in
    torch._dynamo = stand_in  # pyright: ignore[reportAttributeAccessIssue]
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if sys.modules.get(name) is stand_in:
            del sys.modules[name], torch._dynamo


def compiler_is_loaded() -> bool:
    """Return whether the real torch._dynamo was imported."""
    found = sys.modules.get("torch._dynamo")
    return found is not None and not isinstance(found, _NoDynamo)


class _NoDynamo(ModuleType):
    """What eager code asks of torch._dynamo while nothing is compiled; else the real module."""

    config = SimpleNamespace(error_on_nested_fx_trace=True)
    __path__: MutableSequence[str] = []
    """Makes it a package, whose modules `_RealDynamo` finds."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _end_stand_in()
        return getattr(importlib.import_module(self.__name__), name)

    @staticmethod
    def graph_break(msg: str = "") -> None:
        """Do nothing: there is no graph."""

    @staticmethod
    def is_compiling() -> bool:
        """Return False."""
        return False

    @staticmethod
    def disable(
        fn: Callable[..., Any] | None = None, recursive: bool = True, **_: object
    ) -> Callable[..., Any]:
        """Return the function unchanged."""
        return fn if fn is not None else lambda function: function


def _end_stand_in() -> None:
    """Let the next import of torch._dynamo find the real package."""
    if isinstance(sys.modules.get("torch._dynamo"), _NoDynamo):
        del sys.modules["torch._dynamo"]
    if isinstance(vars(torch).get("_dynamo"), _NoDynamo):
        del torch._dynamo


class _RealDynamo(MetaPathFinder):
    """Finds the modules of torch._dynamo behind the stand-in, which gives way to the real package.

    A library that asks for one of them (torchvision does) may be imported while a model is built.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to take the module that the real package imported; None for all others."""
        package = "torch._dynamo"
        if not fullname.startswith(f"{package}."):
            return None
        if not isinstance(sys.modules.get(package), _NoDynamo):
            return None
        _end_stand_in()
        return ModuleSpec(fullname, _Imported(importlib.import_module(fullname)))


class _Imported(Loader):
    """Gives a module that was imported already."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Give it back its own spec: it has run."""
        module.__spec__ = self._spec


def checkpoint_answers() -> Any:
    """Return the patch under which a checkpoint compares shapes and dtypes, but not devices.

    Inside a torch call a tensor without data says `meta`, outside it says `cuda`.
    """

    def metadata(tensor: torch.Tensor) -> dict[str, object]:
        return {"shape": tensor.shape, "dtype": tensor.dtype}

    checks = getattr(torch.utils.checkpoint, "_allowed_determinism_checks_to_fns", {})
    return patch.dict(checks, {"default": metadata})
