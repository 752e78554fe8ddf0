"""A training script that names no model for gpuplan: told so before it is run. Standard library.

Importing it would train, need its data, or end in an error that is about neither.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from .file_text import run_at_import

FORMS = re.compile(r"build_model|model_provider|lightning|import\s*\(?\s*\*", re.IGNORECASE)
"""What a file says that may have a form of a model (docs/model-file.md), if by another's names."""
KNOWN_BASES = frozenset({"Module", "object", "Dataset", "IterableDataset", "Function", "Enum"})
"""Of classes that are no LightningModule, by the last part of their names."""
TRAINS = frozenset({"backward", "fit"})
"""Methods that a script trains with."""
LOADS = "from_pretrained"


def names_no_model(text: str, tree: ast.Module) -> bool:
    """Return whether a file has a model or trains one, and can have no form that gpuplan takes.

    A class with another base may be a LightningModule.
    """
    if not (_trains(_calls(ast.walk(tree))) or any(map(_has_forward, tree.body))):
        return False
    bases = (base for node in tree.body if isinstance(node, ast.ClassDef) for base in node.bases)
    return not FORMS.search(text) and all(_last_name(base) in KNOWN_BASES for base in bases)


def trains_at_import(tree: ast.Module) -> bool:
    """Return whether importing a file trains: a loop, or a Trainer, that no function holds."""
    return _trains(_run(tree))


def pretrained_name(tree: ast.Module) -> str | None:
    """Return the model of a script's first `from_pretrained("…")` that is no tokenizer; or None.

    A variable stands for its text where it is given one text only.
    """
    for node in _calls(ast.walk(tree)):
        if not isinstance(node.func, ast.Attribute):
            continue
        whose, first = ast.unparse(node.func.value), next(iter(node.args), None)
        is_model = "Model" in whose or "For" in whose  # AutoModel…, BertForMaskedLM
        name = _text_of(first, tree)
        if node.func.attr == LOADS and is_model and name is not None:
            return name
    return None


def trained_variable(tree: ast.Module) -> tuple[str, int] | None:
    """Return the variable whose `.parameters()` a file trains, and the line that first sets it."""
    for node in _calls(ast.walk(tree)):
        function = node.func
        if not (isinstance(function, ast.Attribute) and function.attr == "parameters"):
            continue
        lines = [line for line, _ in _assigned(function.value, tree)]
        if isinstance(function.value, ast.Name) and lines:
            return function.value.id, min(lines)
    return None


def _trains(calls: Iterable[ast.Call]) -> bool:
    methods = [call.func for call in calls if isinstance(call.func, ast.Attribute)]
    return any(
        one.attr in TRAINS or (one.attr == "train" and "trainer" in ast.unparse(one.value).lower())
        for one in methods
    )


def _text_of(value: ast.expr | None, tree: ast.Module) -> str | None:
    """Return the text of a constant, or of a variable that is set to that one alone."""
    if isinstance(value, ast.Name):
        values = [one for _, one in _assigned(value, tree)]
        value = values[0] if len(values) == 1 else None
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    return None


def _assigned(variable: ast.expr, tree: ast.Module) -> list[tuple[int, ast.expr]]:
    """Return the line and the value of every plain assignment to a variable."""
    if not isinstance(variable, ast.Name):
        return []
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and any(isinstance(one, ast.Name) and one.id == variable.id for one in node.targets)
    ]


def _calls(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    return (node for node in nodes if isinstance(node, ast.Call))


def _run(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield the calls that importing a file makes in its own text."""
    for statement in run_at_import(tree):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        yield from _calls(ast.walk(statement))


def _has_forward(node: ast.stmt) -> bool:
    if not isinstance(node, ast.ClassDef):
        return False
    return any(isinstance(one, ast.FunctionDef) and one.name == "forward" for one in node.body)


def _last_name(base: ast.expr) -> str:
    return base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
