"""The user's model file: the contract of docs/model-file.md, and how a file is turned into it.

Needs only the standard library and torch, because the runner carries this file to the instances.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from ...catalog.errors import UsageError, UserFileError
from .checks import checked_model, described
from .file_text import contract_lines, installed_imports, model_classes, parse, read_source
from .forms import deepview, lightning, module_class
from .plain_script import names_no_model, pretrained_name, trained_variable, trains_at_import
from .schedulers import bind_scheduler
from .spec import ModelSpec
from .workload import (
    Params,
    Workload,
    bind_batch,
    bind_loss,
    bind_optimizer,
    default_micro_batch,
    tokens_follow_params,
    tokens_per_sample,
    usual_batches,
)

OF_RUNS = {
    "build_eval_dataset": 0,
    "compute_metrics": 2,
    "loss_weight": 1,
    "extra_state": 2,
    "pretrained_weights": 0,
}
"""Functions that only a run calls → how many arguments it gives; params fill the others."""


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
    if spec.inputs and spec.kind == "hf":
        raise _unused_inputs(spec)
    if spec.kind == "hf":
        return module_class.from_config(spec)
    text = read_source(spec.path)
    if spec.class_name is None and names_no_model(text, parse(text, spec.path)):
        raise _no_contract(spec)
    for name in installed_imports(spec.path):
        # Installed packages are imported as they are; only the user's own code sees the stand-in.
        with suppress(Exception):
            importlib.import_module(name)
    with importing():
        module = import_user_file(spec.path)
    if spec.class_name and spec.class_name not in map(_name, lightning.lightning_classes(module)):
        return module_class.from_class(spec, module)
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


def _from_contract(spec: ModelSpec, module: ModuleType) -> Workload:
    params = Params(spec.params)
    build_model = params.bind(_function(module, "build_model", spec))
    make_batch = _function(module, "make_batch", spec)
    build_dataset = getattr(module, "build_dataset", None)
    build_scheduler = getattr(module, "build_scheduler", None)
    batches = bind_batch(params, make_batch, "make_batch")
    for name, reserved in OF_RUNS.items():
        if callable(function := getattr(module, name, None)):
            params.bind(function, reserved=reserved)  # So that their params are known ones.
    workload = Workload(
        name=spec.name,
        path=spec.path,
        params=dict(spec.params),
        build_model=lambda: checked_model(build_model(), "build_model()", spec.params),
        make_batch=batches,
        compute_loss=bind_loss(params, getattr(module, "compute_loss", None), batches),
        build_optimizer=bind_optimizer(params, getattr(module, "build_optimizer", None)),
        build_dataset=params.bind(build_dataset) if build_dataset else None,
        build_scheduler=bind_scheduler(params.bind(build_scheduler, reserved=2))
        if build_scheduler
        else None,
        tokens_per_sample=tokens_per_sample(params, module),
        tokens_follow_params=tokens_follow_params(module),
        make_usual_batch=usual_batches(params, make_batch, "make_batch"),
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
    name, text = spec.path.name, read_source(spec.path)
    classes, tree = model_classes(text, spec.path), parse(text, spec.path)
    if not classes:
        return UserFileError(
            f"{name} has no build_model(), which gives gpuplan the model.",
            fix=f"{_by_config(tree)}add build_model(){_from_line(tree)} and make_batch(batch_size)"
            f" (`gpuplan init` writes an example){_under_main(tree)}.",
        )
    lines = contract_lines(classes[-1]).replace("\n", "\n    ")
    return UserFileError(
        f"{name} has the class {classes[-1].name}, but no build_model() and make_batch().",
        fix=f"paste these lines with your shapes, or run `gpuplan init --from {name}`"
        f"{_under_main(tree)}:\n    {lines}",
    )


def _by_config(tree: ast.Module) -> str:
    """Return how a model that a script loads is estimated without it, to begin a sentence."""
    loaded = pretrained_name(tree)
    if loaded is None:
        return ""
    return f"estimate the model by its config, `gpuplan estimate hf:{loaded}`; or "


def _from_line(tree: ast.Module) -> str:
    """Return what build_model() has to hold of a script whose model is a variable."""
    trained = trained_variable(tree)
    return "" if trained is None else f", which returns what line {trained[1]} calls {trained[0]},"


def _under_main(tree: ast.Module) -> str:
    """Return where what trains belongs, in a file that is imported to see its model."""
    if not trains_at_import(tree):
        return ""
    return ', and put what trains under `if __name__ == "__main__":`'


def _unused_inputs(spec: ModelSpec) -> UsageError:
    return UsageError(
        f"--input does not apply to {spec.text}, which makes its own batches.",
        fix="leave it out, or name a class: model.py:ClassName --input 3,224,224.",
    )


def _name(one: type) -> str:
    return one.__name__


def _package_of(path: Path) -> tuple[Path, str]:
    """Return the folder that holds a file's outermost package, and the file's dotted name."""
    folder, name = path.parent, path.stem
    while (folder / "__init__.py").exists():
        folder, name = folder.parent, f"{folder.name}.{name}"
    return folder, name
