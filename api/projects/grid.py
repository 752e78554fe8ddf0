"""What an experiment's ladder and grid make: the models to estimate, and how often each is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from ...planner.budget.project.experiment import AMOUNTS, Experiment, Rung

Params = Mapping[str, Any]


def rungs(name: str, spec: Experiment) -> Iterator[tuple[str, Params, Mapping[str, Any]]]:
    """Yield the name, params and amount of work of every rung; the experiment's own without."""
    own = {one: getattr(spec, one) for one in AMOUNTS}
    if not spec.ladder:
        yield name, {}, own
    for position, rung in enumerate(spec.ladder, start=1):
        yield f"{name}/{rung.name or position}", rung.params, _rung_amount(rung, own)


def _rung_amount(rung: Rung, own: Mapping[str, Any]) -> Mapping[str, Any]:
    given = {one: getattr(rung, one) for one in AMOUNTS}
    return given if any(value is not None for value in given.values()) else own


def variants(spec: Experiment, takes: frozenset[str] | None) -> Iterator[tuple[str, Params, int]]:
    """Yield the models that a grid makes: a suffix for the name, its params, its settings.

    Args:
        spec: the experiment.
        takes: params that the functions of its model file take; None: any.
    """
    grid = spec.runs.grid
    changing = {name: values for name, values in grid.items() if takes is None or name in takes}
    models = [dict(zip(changing, values, strict=True)) for values in product(*changing.values())]
    each, more = divmod(spec.runs.settings, len(models))
    for i, params in enumerate(models):
        settings = each + (i < more)
        if settings:
            named = ",".join(f"{name}={value}" for name, value in params.items())
            yield f"[{named}]" if named else "", params, settings


def params_of_model(model: str, folder: Path) -> frozenset[str] | None:
    """Return the params that a model of a project takes by name; None: any.

    Args:
        model: As the project names it; one that is no file takes none here.
        folder: Where its file may be.
    """
    path, _, class_name = model_path(model, folder).partition(".py:")
    file = Path(path if path.endswith(".py") else f"{path}.py")
    return params_taken(file, class_name) if file.is_file() else frozenset()


def model_path(model: str, folder: Path) -> str:
    """Return a model as `estimate` takes it: a file beside the project file by its path."""
    beside = folder / model.split(":")[0]
    return model if model.startswith("hf:") or not beside.exists() else str(folder / model)


def params_taken(file: Path, class_name: str = "") -> frozenset[str] | None:
    """Return the params that the functions of a model file take by name; None: any (`**params`).

    The file is read, not run; one that is no Python takes none here, and is refused when it is
    traced.

    Args:
        file: The model file.
        class_name: Of a plain module in it, whose own parameters count then.
    """
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return frozenset()
    functions: list[ast.FunctionDef] = []
    for one in tree.body:
        if isinstance(one, ast.FunctionDef) and not class_name:
            functions.append(one)
        elif isinstance(one, ast.ClassDef) and one.name == class_name:
            functions += [part for part in one.body if isinstance(part, ast.FunctionDef)]
    if any(one.args.kwarg is not None for one in functions):
        return None
    named = (arg.arg for one in functions for arg in (*one.args.args, *one.args.kwonlyargs))
    return frozenset(named) - {"self"}
