"""What the text of a model file says before anything of it runs. Standard library only."""

from __future__ import annotations

import ast
import tokenize
from dataclasses import dataclass
from pathlib import Path

from ..catalog.errors import UsageError, UserFileError

OTHER_FRAMEWORKS: dict[str, str] = {
    "tensorflow": "tensorflow",
    "keras": "keras",
    "jax": "jax",
    "flax": "jax",
    "haiku": "jax",
}
"""Package that a file imports → the name that `launch --framework` takes."""
CONTRACT_FUNCTIONS = (
    "build_model",
    "make_batch",
    "compute_loss",
    "build_optimizer",
    "build_dataset",
)
_INTEGER_INPUTS = {"ids", "input_ids", "idx", "tokens", "token_ids", "indices", "words", "text"}


@dataclass(frozen=True, kw_only=True)
class ModelClass:
    """A class with a `forward`, as far as its text tells."""

    name: str
    required: tuple[str, ...]
    """Constructor arguments without a default."""
    forward: tuple[str, ...]
    """Arguments of `forward` without a default."""


def read_source(path: Path) -> str:
    """Return the text of a model file that can be parsed and is made with PyTorch.

    Raises:
        UsageError: it cannot be opened.
        UserFileError: it is empty, not text, not Python, or made with another framework.
    """
    try:
        with tokenize.open(path) as file:
            text = file.read()
    except (UnicodeDecodeError, SyntaxError) as error:
        raise UserFileError(
            f"{path.name} is not a Python file in UTF-8: {error}.",
            fix="save it as UTF-8, or declare its encoding in the first line.",
        ) from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", fix="check its permissions and its path."
        ) from None
    if not text.strip():
        raise UserFileError(
            f"{path.name} is empty.", fix="write build_model() in it, or run `gpuplan init`."
        )
    _refuse_other_frameworks(parse(text, path), path)
    return text


def parse(text: str, path: Path) -> ast.Module:
    """Return the syntax tree of a file.

    Raises:
        UserFileError: a syntax error, with its line.
    """
    try:
        return ast.parse(text, filename=str(path))
    except SyntaxError as error:
        raise syntax_error(error, path) from None
    except ValueError as error:
        raise UserFileError(
            f"{path.name} is not a Python file: {error}.", fix="give a .py file."
        ) from None


def syntax_error(error: SyntaxError, path: Path) -> UserFileError:
    """Return a syntax error with its file, line and the text of the line."""
    name = Path(error.filename).name if error.filename else path.name
    line = (error.text or "").strip()
    shown = f"\n    {error.lineno} | {line}" if line else ""
    return UserFileError(
        f"{name}:{error.lineno}: {type(error).__name__}: {error.msg}{shown}",
        fix=f"correct line {error.lineno} of {name}; `python {name}` reports the same error.",
    )


def model_classes(text: str, path: Path) -> tuple[ModelClass, ...]:
    """Return the classes of a file that define `forward`, those that others use first."""
    tree = parse(text, path)
    nodes = [
        node for node in tree.body if isinstance(node, ast.ClassDef) and _method(node, "forward")
    ]
    names = {node.name for node in nodes}
    used = {
        inner.id
        for node in nodes
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and inner.id in names and inner.id != node.name
    }
    ordered = sorted(nodes, key=lambda node: node.name not in used)
    return tuple(_model_class(node) for node in ordered)


def contract_lines(model: ModelClass) -> str:
    """Return the lines that turn a file with this class into a model file."""
    required = ", ".join(model.required)
    inputs = [_example_input(name) for name in model.forward] or [_example_input("x")]
    arguments = ", ".join(f"batch[{position}]" for position in range(len(inputs)))
    return "\n".join(
        [
            f"def build_model({required}):",
            f"    return {model.name}({', '.join(f'{one}={one}' for one in model.required)})",
            "def make_batch(batch_size=8):",
            f"    return ({', '.join(inputs)}, torch.randint(10, (batch_size,)))",
            "def compute_loss(model, batch):",
            f"    return torch.nn.functional.cross_entropy(model({arguments}), batch[-1])",
        ]
    )


def _refuse_other_frameworks(tree: ast.Module, path: Path) -> None:
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
    }
    others = [name for name in OTHER_FRAMEWORKS if name in imported]
    if not others or imported & {"torch", "lightning", "pytorch_lightning", "transformers", "timm"}:
        return
    framework = OTHER_FRAMEWORKS[others[0]]
    raise UserFileError(
        f"{path.name} is made with {others[0]}; gpuplan estimates PyTorch only.",
        fix="estimate with a PyTorch version of the model, or launch this one without an"
        f" estimate: gpuplan launch --framework {framework}.",
    )


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == name:
            return item
    return None


def _model_class(node: ast.ClassDef) -> ModelClass:
    return ModelClass(
        name=node.name,
        required=_required(_method(node, "__init__")),
        forward=_required(_method(node, "forward")),
    )


def _required(method: ast.FunctionDef | None) -> tuple[str, ...]:
    if method is None:
        return ()
    arguments = method.args
    positional = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    positional = positional[1 : len(positional) - len(arguments.defaults)]
    keywords = [
        one.arg
        for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    return (*positional, *keywords)


def _example_input(name: str) -> str:
    if name in _INTEGER_INPUTS:
        return "torch.randint(1000, (batch_size, 128))"
    return "torch.randn(batch_size, 3, 224, 224)"
