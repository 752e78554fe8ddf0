"""What the text of a model file says before anything of it runs. Standard library only."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...catalog.errors import UsageError, UserFileError

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
OF_NOTEBOOKS = ("%", "!")
"""How commands of a notebook begin, which are no Python."""
_INTEGER_INPUTS = {"ids", "input_ids", "idx", "tokens", "token_ids", "indices", "words", "text"}
EMBEDDINGS = ("Embedding", "EmbeddingBag")
"""Classes of torch that take integers."""
_LABELS = {"label", "labels", "target", "targets"}
_TIMES = {"t", "time", "timestep", "timesteps"}
"""Names of arguments of `forward` that say what they are."""


@dataclass(frozen=True, kw_only=True)
class ModelClass:
    """A class with a `forward`, as far as its text tells."""

    name: str
    required: tuple[str, ...]
    """Constructor arguments without a default."""
    forward: tuple[str, ...]
    """Arguments of `forward` without a default."""
    looked_up: tuple[str, ...] = ()
    """Those that go into an embedding as they are: integers."""


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
    fix = f"correct line {error.lineno} of {name}; `python {name}` reports the same error."
    if line.startswith(OF_NOTEBOOKS):
        fix = f"leave lines out that begin with {' or '.join(OF_NOTEBOOKS)}: a notebook's alone."
    return UserFileError(
        f"{name}:{error.lineno}: {type(error).__name__}: {error.msg}{shown}", fix=fix
    )


def installed_imports(path: Path) -> tuple[str, ...]:
    """Return the installed modules that importing a file imports, itself or from beside it."""
    return _imports(path)[0]


def required_imports(path: Path) -> tuple[str, ...]:
    """Return those of `installed_imports` without which importing a file fails: under no `try`."""
    return _imports(path, guarded=False)[0]


def local_files(path: Path) -> tuple[Path, ...]:
    """Return a file and those beside it that importing it imports, in the order of their names."""
    return tuple(sorted(_imports(path)[1]))


def _imports(path: Path, *, guarded: bool = True) -> tuple[tuple[str, ...], set[Path]]:
    """Return the installed modules and the local files that importing a file takes."""
    found: dict[str, None] = {}
    todo, seen = [path], {path}
    while todo:
        try:
            tree = ast.parse(todo.pop().read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        for name in _imported_names(run_at_import(tree, guarded=guarded)):
            beside = path.parent.joinpath(*name.split("."))
            local = [beside.with_suffix(".py"), beside / "__init__.py"]
            local = [file for file in local if file.exists()]
            if not local and not (path.parent / name.split(".")[0]).is_dir():
                found[name] = None
            todo += [file for file in local if file not in seen]
            seen |= set(local)
    return tuple(found), seen


def model_classes(text: str, path: Path) -> tuple[ModelClass, ...]:
    """Return the classes of a file that define `forward`, those that others use first."""
    tree = parse(text, path)
    nodes = [
        node for node in tree.body if isinstance(node, ast.ClassDef) and _method(node, "forward")
    ]
    names = {node.name for node in nodes}
    used = {name for node in nodes for name in _names(node) & names if name != node.name}
    ordered = sorted(nodes, key=lambda node: node.name not in used)
    return tuple(_model_class(node) for node in ordered)


def defines_contract(text: str, path: Path) -> bool:
    """Return whether a file has both functions that gpuplan needs.

    Raises:
        UserFileError: it is not Python.
    """
    found = {node.name for node in parse(text, path).body if isinstance(node, ast.FunctionDef)}
    return {"build_model", "make_batch"} <= found


def contract_lines(model: ModelClass) -> str:
    """Return the lines that turn a file with this class into a model file."""
    required = ", ".join(model.required)
    integers = _INTEGER_INPUTS | set(model.looked_up)
    inputs = [_example_input(name, model.forward, integers) for name in model.forward or ("x",)]
    lines = [
        f"def build_model({required}):",
        f"    return {model.name}({', '.join(f'{one}={one}' for one in model.required)})",
        "def make_batch(batch_size=8):",
    ]
    if _LABELS & set(model.forward):
        # It computes its loss itself, and that is what it returns.
        return "\n".join([*lines, f"    return ({', '.join(inputs)},)"])
    arguments = ", ".join(f"batch[{position}]" for position in range(len(inputs)))
    return "\n".join(
        [
            *lines,
            f"    return ({', '.join(inputs)}, torch.randint(10, (batch_size,)))",
            "def compute_loss(model, batch):",
            f"    return torch.nn.functional.cross_entropy(model({arguments}), batch[-1])",
        ]
    )


def _refuse_other_frameworks(tree: ast.Module, path: Path) -> None:
    imported = {name.split(".")[0] for name in _imported_names(ast.walk(tree))}
    others = [name for name in OTHER_FRAMEWORKS if name in imported]
    if not others or imported & {"torch", "lightning", "pytorch_lightning", "transformers", "timm"}:
        return
    framework = OTHER_FRAMEWORKS[others[0]]
    raise UserFileError(
        f"{path.name} is made with {others[0]}; gpuplan estimates PyTorch only.",
        fix="estimate with a PyTorch version of the model, or launch this one without an"
        f" estimate: gpuplan launch --framework {framework}.",
    )


def run_at_import(tree: ast.AST, *, guarded: bool = True) -> Iterator[ast.AST]:
    """Yield the statements that importing a file runs, those under `if` and `try` as well.

    Args:
        tree: the file's.
        guarded: whether those under a `try` count, which may fail.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and _names(node.test) & {"__name__", "TYPE_CHECKING"}:
            continue
        if isinstance(node, ast.Try) and not guarded:
            continue
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from run_at_import(node, guarded=guarded)


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _imported_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the dotted names of the modules that these import, relative imports left out."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module


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
        looked_up=_looked_up(node),
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


def _looked_up(node: ast.ClassDef) -> tuple[str, ...]:
    """Return the names that `forward` gives to an embedding of the class as they are."""
    embeddings = {
        ast.unparse(target)
        for part in ast.walk(node)
        if isinstance(part, ast.Assign)
        and isinstance(part.value, ast.Call)
        and ast.unparse(part.value.func).rpartition(".")[2] in EMBEDDINGS
        for target in part.targets
    }
    forward = _method(node, "forward")
    calls = [part for part in ast.walk(forward) if isinstance(part, ast.Call)] if forward else []
    given = [call.args[0] for call in calls if call.args and ast.unparse(call.func) in embeddings]
    return tuple(dict.fromkeys(one.id for one in given if isinstance(one, ast.Name)))


def _example_input(name: str, beside: Collection[str], integers: Collection[str]) -> str:
    """Return a tensor for an argument of `forward`, by its name and the names beside it."""
    if name in integers or (name in _LABELS and set(integers) & set(beside)):
        return "torch.randint(1000, (batch_size, 128))"
    if name in _LABELS:
        return "torch.randint(10, (batch_size,))"
    if name in _TIMES:
        return "torch.randint(1000, (batch_size,))"
    return "torch.randn(batch_size, 3, 224, 224)"
