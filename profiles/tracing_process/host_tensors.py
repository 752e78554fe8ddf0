"""Whether a step would mix tensors of the CPU with those of the GPU, on which torch ends it.

`torch.arange(n)` in a `forward` is made on the CPU. Training there never shows it, and a trace puts
it on the device; on a GPU the first step fails. The text of a file says whether it makes any tensor
without a device; only then a child process runs one forward pass without data to see where it goes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from ...catalog.errors import GpuplanError, UserFileError
from ..user_model.failures import from_json
from ..user_model.file_text import local_files
from ..user_model.spec import ModelSpec
from .child import Child

LIMIT_S = 30.0
"""What takes longer is not looked at: a launch is not to wait for it."""
FACTORIES = """
zeros ones empty full rand randn randint randperm arange range linspace logspace eye tensor normal
tril_indices triu_indices as_tensor from_numpy hann_window Tensor FloatTensor LongTensor BoolTensor
IntTensor
""".split()  # noqa: SIM905 - a column of names is not read as fast
"""Functions of torch that make a tensor on the CPU, or on the device that they are given."""
OF_DATA = """
make_batch build_dataset build_eval_dataset __getitem__ __iter__ __len__ collate_fn train_dataloader
val_dataloader loss_weight
""".split()  # noqa: SIM905
"""What these make is moved to the device, or stays on the host."""
MOVED_OTHERWISE = (
    "set_default_",
    "with torch.device",
    "def _apply",
    "def to(",
    "def cuda(",
    "lightning",
)
"""What a file that decides by itself where its tensors are holds; nothing is said of it."""


def refuse_host_tensors(spec: ModelSpec) -> None:
    """Refuse a model file whose step surely fails on a GPU; nothing where that is not known.

    Args:
        spec: the model.

    Raises:
        UserFileError: a line of the file mixes a tensor of the CPU with one of the GPU.
    """
    if spec.kind != "file" or not may_make_host_tensors(spec):
        return
    limited = replace(spec, timeout_s=min(spec.timeout_s, LIMIT_S))
    child = Child(limited, main=f"{__package__}.host_tensors_main")
    try:
        found = child.result().get("found")
    except GpuplanError:
        return  # The step cannot be traced: whoever estimated it knows.
    if found is not None:
        error = from_json(found)
        raise UserFileError(error.message, fix=error.fix)


def may_make_host_tensors(spec: ModelSpec) -> bool:
    """Return whether a file, or one beside it that it imports, makes a tensor without a device."""
    texts: list[str] = []
    for path in local_files(spec.path):
        try:
            texts.append(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False  # It is refused elsewhere, by name.
    if any(word in text for text in texts for word in MOVED_OTHERWISE):
        return False
    try:
        return any(_makes_tensors(ast.parse(text)) for text in texts)
    except (SyntaxError, ValueError):
        return False


def _makes_tensors(tree: ast.AST) -> bool:
    return any(_is_without_device(node) for node in _run_in_steps(tree))


def _run_in_steps(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree but for those that only make data."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name in OF_DATA:
            continue
        yield node
        yield from _run_in_steps(node)


def _is_without_device(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    is_torch = isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
    return (
        is_torch
        and node.func.attr in FACTORIES
        and all(one.arg not in ("device", None) for one in node.keywords)
    )
