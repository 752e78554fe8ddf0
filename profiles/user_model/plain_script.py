"""A training script that names no model for gpuplan: told so before it is run. Standard library.

Importing it would train, need its data, or end in an error that is about neither.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

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
    if not (trains_at_import(tree) or any(map(_has_forward, tree.body))):
        return False
    bases = (base for node in tree.body if isinstance(node, ast.ClassDef) for base in node.bases)
    return not FORMS.search(text) and all(_last_name(base) in KNOWN_BASES for base in bases)


def trains_at_import(tree: ast.Module) -> bool:
    """Return whether importing a file trains: a loop, or a Trainer, that no function holds."""
    called = {node.func.attr for node in _run(tree) if isinstance(node.func, ast.Attribute)}
    is_trainer = any(
        isinstance(node.func, ast.Attribute)
        and node.func.attr == "train"
        and "trainer" in ast.unparse(node.func.value).lower()
        for node in _run(tree)
    )
    return bool(called & TRAINS) or is_trainer


def pretrained_name(tree: ast.Module) -> str | None:
    """Return the model of a script's first `from_pretrained("…")` that is no tokenizer; or None."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        whose, first = ast.unparse(node.func.value), next(iter(node.args), None)
        is_model = "Model" in whose or "For" in whose  # AutoModel…, BertForMaskedLM
        if node.func.attr == LOADS and is_model and isinstance(first, ast.Constant):
            return str(first.value)
    return None


def _run(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield the calls that importing a file makes in its own text."""
    for statement in run_at_import(tree):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        yield from (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def _has_forward(node: ast.stmt) -> bool:
    if not isinstance(node, ast.ClassDef):
        return False
    return any(isinstance(one, ast.FunctionDef) and one.name == "forward" for one in node.body)


def _last_name(base: ast.expr) -> str:
    return base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
