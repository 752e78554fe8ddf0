"""The user's model file: the contract of docs/model-file.md, and how a file is turned into it.

Needs only the standard library and torch, because the runner carries this file to the instances.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ...catalog.errors import UsageError, UserFileError, did_you_mean
from .checks import (
    Batch,
    checked_batch,
    checked_loss,
    checked_model,
    default_loss,
    default_optimizer,
    described,
)
from .source import contract_lines, installed_imports, model_classes, read_source
from .spec import ModelSpec


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
    """The function of the file whose loader `make_batch` reads, the same samples every time."""
    tokens_per_sample: float | None = None
    default_micro_batch: int | None = None


def load_workload(
    spec: ModelSpec, *, importing: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Workload:
    """Return the workload of a model file, in whichever of the accepted forms it is written.

    Args:
        spec: What was named, with its params.
        importing: Gives the context in which the file is imported; the tracer's stand-in for a
            GPU, so that `.cuda()` at the top of a file works on a machine without one.

    Raises:
        UserFileError: the file does not follow the contract. What the file itself raises passes
            through unchanged.
        UsageError: a param that no function takes.
    """
    from . import deepview, forms, lightning

    if spec.inputs and spec.kind == "hf":
        raise _unused_inputs(spec)
    if spec.kind == "hf":
        return forms.from_config(spec)
    read_source(spec.path)
    for name in installed_imports(spec.path):
        # Installed packages are imported as they are; only the user's own code sees the stand-in.
        with suppress(Exception):
            importlib.import_module(name)
    with importing():
        module = import_user_file(spec.path)
    if spec.class_name and spec.class_name not in map(_name, lightning.lightning_classes(module)):
        return forms.from_class(spec, module)
    has_contract = hasattr(module, "build_model") and not spec.class_name
    has_entry_points = deepview.entry_point(module, "model_provider") and not spec.class_name
    if spec.inputs and (has_contract or has_entry_points):
        raise _unused_inputs(spec)
    if has_contract:
        return _from_contract(spec, module)
    if has_entry_points:
        return deepview.from_entry_points(spec, module)
    if lightning.lightning_classes(module):
        return lightning.from_lightning(spec, module)
    raise _no_contract(spec)


def import_user_file(path: Path) -> ModuleType:
    """Import a user's file as their own scripts would see it, its folder first on `sys.path`.

    A file with relative imports is imported as part of its package. A file named like a module
    of the standard library (or one that is loaded already) does not replace that module.
    """
    text = read_source(path)
    folder, name = _package_of(path) if "from ." in text else (path.parent, path.stem)
    if name.isidentifier() and (name in sys.modules or name in sys.stdlib_module_names):
        name = f"_model_file_{name}"
    sys.path.insert(0, str(folder))
    if folder != path.parent:
        importlib.import_module(name.rpartition(".")[0])
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise UserFileError(f"{path.name} is not a Python file.", fix="give a .py file.")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


def optional_function(workload: Workload, name: str) -> Callable[..., Any] | None:
    """Return a function that a model file may have beside those of the contract; None if not."""
    for module in list(sys.modules.values()):
        if workload.path and getattr(module, "__file__", None) == str(workload.path):
            found = getattr(module, name, None)
            return found if callable(found) else None
    return None


class Params:
    """The params of a spec, handed to each function by the names it takes.

    `check_taken` then knows which keys nobody asked for.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)
        self._names: set[str] = set()
        self._takes_all = False

    def bind(self, function: Callable[..., Any], *, reserved: int = 0) -> Callable[..., Any]:
        """Return the function with the params it takes filled in.

        Args:
            function: The user's function or class.
            reserved: How many leading arguments the caller gives; params never fill those.
        """
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
        optimizer = bound(parameters)
        if isinstance(optimizer, torch.optim.Optimizer):
            return optimizer
        raise UserFileError(
            f"build_optimizer() returned {described(optimizer)}, not a torch.optim.Optimizer.",
            fix="return for example torch.optim.AdamW(parameters, lr=1e-4).",
        )

    return build_optimizer


def bind_loss(params: Params, function: Callable[..., Any] | None) -> Callable[..., torch.Tensor]:
    """Return the file's loss function, or the default one, with its result checked."""
    if function is None:
        return default_loss
    bound = params.bind(function, reserved=2)
    return lambda model, batch: checked_loss(bound(model, batch), "compute_loss()")


def bind_batch(params: Params, function: Callable[..., Any], source: str) -> Callable[[int], Batch]:
    """Return the file's batch function with its params bound and its result checked."""
    if not _parameters(function):
        raise UserFileError(
            f"{source}() takes no argument; gpuplan asks it for batches of several sizes.",
            fix=f"write def {source}(batch_size): and use batch_size as the first dimension.",
        )
    bound = params.bind(function, reserved=1)
    return lambda batch_size: checked_batch(bound(batch_size), f"{source}({batch_size})")


def default_micro_batch(function: Callable[..., Any]) -> int | None:
    """Return the default of a batch function's first argument, if it is a positive integer."""
    parameters = _parameters(function)
    default = parameters[0].default if parameters else None
    is_size = isinstance(default, int) and not isinstance(default, bool) and default > 0
    return default if is_size else None


def tokens_per_sample(params: Params, module: ModuleType) -> float | None:
    """Return the file's TOKENS_PER_SAMPLE, a number or a function of params; None if not given.

    Raises:
        UserFileError: it is not a number above 0.
    """
    value = getattr(module, "TOKENS_PER_SAMPLE", None)
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


def _from_contract(spec: ModelSpec, module: ModuleType) -> Workload:
    params = Params(spec.params)
    build_model = params.bind(_function(module, "build_model", spec))
    make_batch = _function(module, "make_batch", spec)
    build_dataset = getattr(module, "build_dataset", None)
    workload = Workload(
        name=spec.name,
        path=spec.path,
        params=dict(spec.params),
        build_model=lambda: checked_model(build_model(), "build_model()", spec.params),
        make_batch=bind_batch(params, make_batch, "make_batch"),
        compute_loss=bind_loss(params, getattr(module, "compute_loss", None)),
        build_optimizer=bind_optimizer(params, getattr(module, "build_optimizer", None)),
        build_dataset=params.bind(build_dataset) if build_dataset else None,
        tokens_per_sample=tokens_per_sample(params, module),
        default_micro_batch=default_micro_batch(make_batch),
    )
    params.check_taken(spec.path.name)
    return workload


def _function(module: ModuleType, name: str, spec: ModelSpec) -> Callable[..., Any]:
    function = getattr(module, name, None)
    if callable(function):
        return function
    found = "has no" if function is None else f"gives {described(function)} as"
    example = (
        "def make_batch(batch_size):\n        return (torch.randn(batch_size, 3, 224, 224),)"
        if name == "make_batch"
        else f"def {name}(): …"
    )
    raise UserFileError(
        f"{spec.path.name} {found} {name}(); gpuplan needs it to train the model.",
        fix=f"add for example:\n    {example}",
    )


def _no_contract(spec: ModelSpec) -> UserFileError:
    """Return the error of a file without an entry point, with the lines to paste."""
    name = spec.path.name
    classes = model_classes(read_source(spec.path), spec.path)
    if not classes:
        return UserFileError(
            f"{name} has no build_model(), so there is nothing to train.",
            fix="add build_model() and make_batch(batch_size) (`gpuplan init` writes an example).",
        )
    lines = contract_lines(classes[-1]).replace("\n", "\n    ")
    return UserFileError(
        f"{name} has the class {classes[-1].name}, but no build_model() and make_batch().",
        fix=f"paste these lines, or run `gpuplan init --from {name}`:\n    {lines}",
    )


def _unused_inputs(spec: ModelSpec) -> UsageError:
    return UsageError(
        f"--input does not apply to {spec.text}, which makes its own batches.",
        fix="leave it out, or name a class: model.py:ClassName --input 3,224,224.",
    )


def _missing_params(function: Callable[..., Any], names: list[str]) -> UsageError:
    called = getattr(function, "__name__", "the function")
    options = " ".join(f"--param {name}=…" for name in names)
    return UsageError(
        f"{called}() needs {' and '.join(names)}, which has no default.",
        fix=f"give {options}, or a default in the file.",
    )


def _name(one: type) -> str:
    return one.__name__


def _package_of(path: Path) -> tuple[Path, str]:
    """Return the folder that holds a file's outermost package, and the file's dotted name."""
    folder, name = path.parent, path.stem
    while (folder / "__init__.py").exists():
        folder, name = folder.parent, f"{folder.name}.{name}"
    return folder, name


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
