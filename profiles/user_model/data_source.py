"""What a model would be trained on, as far as the text of its file tells.

Standard library only, and nothing of the file is run: a command says it before torch is loaded.
The runner, which has the file loaded, refuses once more what a text could not tell.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .file_text import run_at_import
from .forms.lightning_hooks import not_run
from .spec import ModelSpec

DataKind = Literal["dataset", "synthetic", "loader", "unknown"]
"""build_dataset(); batches of make_batch or of shapes; a Lightning file's own loader; not told by
the text."""
LOADER = "train_dataloader"


@dataclass(frozen=True)
class DataSource:
    """What a model would be trained on."""

    kind: DataKind
    why: str
    """One clause, such as "net.py has no build_dataset()"."""
    not_run: tuple[str, ...] = ()
    """Names of what the file has for a Trainer, and gpuplan's runner does not run."""


def data_source(spec: ModelSpec) -> DataSource:
    """Return what gpuplan's runner would train a model on, without `--synthetic`."""
    if spec.kind == "hf":
        return DataSource("synthetic", "a Hugging Face config has no data set")
    if spec.kind == "profile":
        return DataSource("synthetic", "a written Profile has no data set")
    names = _names_of(spec.path, seen=set())
    file, wanted = spec.path.name, "build_dataset"
    loader = _has_loader(spec, names)
    if loader:
        return DataSource("loader", f"{LOADER}() of {file}", not_run(loader))
    if spec.class_name is not None:
        return DataSource("synthetic", f"a class of {file} is trained without build_dataset()")
    if wanted in names and "build_model" in names:
        return DataSource("dataset", f"{wanted}() of {file}")
    if None in names:
        return DataSource("unknown", f"whether {file} has {wanted}() is not seen in its text")
    if wanted in names:
        return DataSource("synthetic", f"{wanted}() of {file} is not used without build_model()")
    return DataSource("synthetic", f"{file} has no {wanted}()")


def _has_loader(spec: ModelSpec, names: set[str | None]) -> list[ast.ClassDef]:
    """Return the LightningModules of a file whose own loader gives its batches, with their bases.

    None of a file of another form.
    """
    is_contract = "build_model" in names and spec.class_name is None
    if is_contract or "make_batch" in names or spec.inputs:
        return []
    classes = [node for node in _body(spec.path) if isinstance(node, ast.ClassDef)]
    modules = [one for one in classes if _is_a(one, "LightningModule", classes)]
    named = spec.class_name
    if not modules or (named is not None and named not in {one.name for one in modules}):
        return []
    sources = [one for one in classes if _is_a(one, "LightningDataModule", classes)]
    return modules if sources or any(_defines(one, LOADER) for one in modules) else []


def _names_of(path: Path, *, seen: set[Path]) -> set[str | None]:
    """Return the names that importing a file binds; None among them for names not told."""
    seen.add(path)
    names: set[str | None] = set()
    for node in _body(path):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {
                one.id
                for target in targets
                for one in ast.walk(target)
                if isinstance(one, ast.Name)
            }
        elif isinstance(node, ast.ImportFrom | ast.Import):
            for alias in node.names:
                if alias.name != "*":
                    names.add(alias.asname or alias.name)
                elif isinstance(node, ast.ImportFrom):
                    names |= _names_behind_star(node, path, seen=seen)
    return names


def _names_behind_star(node: ast.ImportFrom, path: Path, *, seen: set[Path]) -> set[str | None]:
    folder = (
        path.parents[max(node.level - 1, 0)] if node.level <= len(path.parents) else path.parent
    )
    beside = folder.joinpath(*(node.module or "__init__").split("."))
    for file in (beside.with_suffix(".py"), beside / "__init__.py"):
        if file.exists():
            return set() if file in seen else _names_of(file, seen=seen)
    return {None}


def _body(path: Path) -> Iterator[ast.AST]:
    """Yield the statements that importing a file runs; none of a file that cannot be read."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    yield from run_at_import(tree)


def _is_a(one: ast.ClassDef, base: str, classes: list[ast.ClassDef]) -> bool:
    """Return whether a class has a base of this name, itself or through classes of its file."""
    names = {part.attr if isinstance(part, ast.Attribute) else _id(part) for part in one.bases}
    others = [other for other in classes if other.name in names and other is not one]
    return base in names or any(_is_a(other, base, [*_without(classes, one)]) for other in others)


def _without(classes: list[ast.ClassDef], one: ast.ClassDef) -> Iterator[ast.ClassDef]:
    return (other for other in classes if other is not one)


def _id(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def _defines(one: ast.ClassDef, name: str) -> bool:
    return any(isinstance(item, ast.FunctionDef) and item.name == name for item in one.body)
