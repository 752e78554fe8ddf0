"""A loaded model file: its functions with their params bound, each checking what it returns.

Needs only the standard library and torch, because the runner carries this file to the instances.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ...catalog.errors import UsageError, UserFileError, did_you_mean
from .checks import Batch, checked_batch, checked_loss, default_loss, default_optimizer
from .schedulers import SchedulerFunction
from .several_optimizers import as_one_optimizer

TOKENS = "TOKENS_PER_SAMPLE"
"""What a file calls the tokens of a sample."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A user's file, loaded: the functions of the contract with their params already bound.

    Every function checks what the user's code returned, so a tracer may trust the types: a module
    with something to train, a batch that is a tuple or a dict, a loss of one element.
    """

    name: str
    path: Path | None
    params: dict[str, Any] = field(default_factory=dict)
    build_model: Callable[[], torch.nn.Module]
    make_batch: Callable[[int], Batch]
    compute_loss: Callable[[torch.nn.Module, Batch], torch.Tensor]
    build_optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
    build_dataset: Callable[[], Any] | None = None
    loader: str | None = None
    """The function of the file whose loader gives its batches and its data set."""
    tokens_per_sample: float | None = None
    tokens_follow_params: bool = False
    """Whether the file gives them as a function, which may take params."""
    make_usual_batch: Callable[[int], Batch] | None = None
    """`make_batch` without the params that were given; None where none were."""
    default_micro_batch: int | None = None
    build_scheduler: SchedulerFunction | None = None
    """Makes the learning-rate schedules, for an optimizer and so many steps."""
    not_run: tuple[str, ...] = ()
    """Names of what the file has and gpuplan's runner does not run."""
    loader_batch_size: Callable[[], int | None] = lambda: None
    """The batch size of that loader; None before `make_batch` read it, or where it has none."""


def optional_function(workload: Workload, name: str) -> Callable[..., Any] | None:
    """Return a function that a model file may have beside those of the contract; None if not."""
    for module in list(sys.modules.values()):
        if workload.path and getattr(module, "__file__", None) == str(workload.path):
            found = getattr(module, name, None)
            return found if callable(found) else None
    return None


def bound_function(workload: Workload, name: str, *, reserved: int) -> Callable[..., Any] | None:
    """Return a function that a model file may have, with its params bound; None if it has none.

    Args:
        workload: of the file.
        name: of the function.
        reserved: how many leading arguments the caller gives.
    """
    function = optional_function(workload, name)
    if function is None:
        return None
    return Params(workload.params).bind(function, reserved=reserved)


ARGUMENTS = {
    "compute_loss": "model, batch",
    "build_optimizer": "parameters",
}
"""What these functions of a model file are called with; `make_batch` has a message of its own."""


class Params:
    """The params of a spec, handed to each function by the names it takes.

    `check_taken` then knows which keys nobody asked for.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)
        self._names: set[str] = set()
        self._takes_all = False

    def __bool__(self) -> bool:
        """Return whether any were given."""
        return bool(self._values)

    def bind(self, function: Callable[..., Any], *, reserved: int = 0) -> Callable[..., Any]:
        """Return the function with the params it takes filled in.

        Args:
            function: The user's function or class.
            reserved: How many leading arguments the caller gives; params never fill those.

        Raises:
            UserFileError: it does not take so many arguments, or is asynchronous.
        """
        check_callable_with(function, reserved)
        parameters = _parameters(function)
        names = {
            one.name
            for one in parameters[reserved:]
            if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        }
        reserved_names = [one.name for one in parameters[:reserved]]
        takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters)
        self._names |= names
        self._takes_all |= takes_all
        given = {
            key: value
            for key, value in self._values.items()
            if key in names or (takes_all and key not in reserved_names)
        }
        missing = [
            one.name
            for one in parameters[reserved:]
            if one.name in names and one.default is one.empty and one.name not in given
        ]
        keyword_only = [one.name for one in parameters[:reserved] if one.kind is one.KEYWORD_ONLY]

        def call(*arguments: Any) -> Any:
            if missing:
                raise _missing_params(function, missing)
            split = len(arguments) - len(keyword_only)
            named = dict(zip(keyword_only, arguments[split:], strict=True))
            return function(*arguments[:split], **named, **given)

        return call

    def check_taken(self, where: str) -> None:
        """Raise a UsageError for the first key that no function takes."""
        if self._takes_all:
            return
        for key in self._values:
            if key in self._names:
                continue
            if key == "batch_size":
                fix = "give the batch size with --micro-batch."
            elif self._names:
                fix = f"use one of {', '.join(sorted(self._names))}."
            else:
                fix = "leave --param out: none of its functions takes an argument."
            raise UsageError(
                f"No function of {where} takes the param {key!r}.{did_you_mean(key, self._names)}",
                fix=fix,
            )


def bind_optimizer(params: Params, function: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return the file's optimizer function with its params bound and its result checked."""
    if function is None:
        return default_optimizer
    bound = params.bind(function, reserved=1)

    def build_optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        try:
            optimizer = bound(parameters)
        except AttributeError as error:
            if error.obj is not parameters:
                raise
            raise UserFileError(
                f"build_optimizer() asks its argument for {error.name!r}: it is given the"
                " parameters of the model, not the model.",
                fix="take them as they are, and groups by their shapes:"
                " [p for p in parameters if p.ndim > 1].",
            ) from error
        return as_one_optimizer(optimizer)

    return build_optimizer


class BatchFunction:
    """The file's batch function: what it returns is checked, and one tensor made a tuple.

    A file that returns a bare tensor has a loss function that takes one, so that what it gave is
    remembered.
    """

    def __init__(self, function: Callable[[int], Any], source: str) -> None:
        self._function = function
        self._source = source
        self._is_bare: bool | None = None

    def __call__(self, batch_size: int) -> Batch:
        """Return a batch of so many samples."""
        batch = self._function(batch_size)
        self._is_bare = isinstance(batch, torch.Tensor)
        return checked_batch(batch, f"{self._source}({batch_size})")

    def as_given(self, batch: Batch) -> Any:
        """Return a batch in the form in which the file's own functions take it."""
        if not isinstance(batch, tuple) or len(batch) != 1:
            return batch
        if self._is_bare is None:  # A run on a data set has not asked for a batch of it.
            with torch.random.fork_rng(devices=()):
                self(1)
        return batch[0] if self._is_bare else batch


def bind_loss(
    params: Params, function: Callable[..., Any] | None, make_batch: object = None
) -> Callable[..., torch.Tensor]:
    """Return the file's loss function, or the default one, with its result checked.

    Args:
        params: of the file.
        function: its own; None for the default.
        make_batch: makes its batches; a `BatchFunction` says in which form the function takes them.
    """
    if function is None:
        return default_loss
    bound = params.bind(function, reserved=2)
    as_given = make_batch.as_given if isinstance(make_batch, BatchFunction) else _unchanged
    return lambda model, batch: checked_loss(bound(model, as_given(batch)), "compute_loss()")


def _unchanged(batch: Batch) -> Batch:
    return batch


def bind_batch(params: Params, function: Callable[..., Any], source: str) -> BatchFunction:
    """Return the file's batch function with its params bound and its result checked."""
    if not _parameters(function):
        raise UserFileError(
            f"{source}() takes no argument; gpuplan asks it for batches of several sizes.",
            fix=f"write def {source}(batch_size): and use batch_size as the first dimension.",
        )
    bound = params.bind(function, reserved=1)
    return BatchFunction(bound, source)


def usual_batches(
    params: Params, function: Callable[..., Any], source: str
) -> Callable[[int], Batch] | None:
    """Return the file's batch function without the params that were given; None without any."""
    return bind_batch(Params({}), function, source) if params else None


def default_micro_batch(function: Callable[..., Any]) -> int | None:
    """Return the default of a batch function's first argument; None where that is no integer.

    Raises:
        UserFileError: it is an integer below 1.
    """
    parameters = _parameters(function)
    default = parameters[0].default if parameters else None
    if not isinstance(default, int) or isinstance(default, bool):
        return None
    if default < 1:
        called, name = getattr(function, "__name__", "the function"), parameters[0].name
        raise UserFileError(
            f"{called}({name}={default}) makes batches of {default} samples by default, and a step"
            " takes 1 or more.",
            fix=f"give the samples that one device takes at once, for example"
            f" def {called}({name}=8), or no default.",
        )
    return default


def tokens_per_sample(params: Params, module: ModuleType) -> float | None:
    """Return the file's TOKENS_PER_SAMPLE, a number or a function of params; None if not given.

    Raises:
        UserFileError: it is not a number above 0.
    """
    value = getattr(module, TOKENS, None)
    if callable(value):
        value = params.bind(value)()
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise UserFileError(
            f"TOKENS_PER_SAMPLE is {value!r}, not a number of tokens.",
            fix="set it to the tokens in one sample, such as TOKENS_PER_SAMPLE = 1024.",
        )
    return float(value)


def tokens_follow_params(module: ModuleType) -> bool:
    """Return whether the file's TOKENS_PER_SAMPLE is a function, and may follow its params."""
    return callable(getattr(module, TOKENS, None))


def check_callable_with(function: Callable[..., Any], given: int) -> None:
    """Check that a user's function can be called with so many arguments before its params.

    Raises:
        UserFileError: it takes fewer, or is asynchronous.
    """
    called = getattr(function, "__name__", "the function")
    if inspect.iscoroutinefunction(function):
        raise UserFileError(
            f"{called}() is asynchronous, and what it returns is not awaited.",
            fix=f"write def {called}(…) without async.",
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return  # Of a function in C nothing is known.
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return
    taken = sum(one.kind is not one.VAR_KEYWORD for one in parameters)
    if taken < given:
        wanted = ARGUMENTS.get(called)
        write = f"write def {called}({wanted})" if wanted else f"let it take {given} arguments"
        raise UserFileError(
            f"{called}() takes {taken or 'no'} argument{'' if taken == 1 else 's'}, and is called"
            f" with {given}.",
            fix=f"{write}, and its params behind.",
        )


def _missing_params(function: Callable[..., Any], names: list[str]) -> UsageError:
    called = getattr(function, "__name__", "the function")
    options = " ".join(f"--param {name}=…" for name in names)
    return UsageError(
        f"{called}() needs {' and '.join(names)}, which has no default.",
        fix=f"give {options}, or a default in the file.",
    )


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
