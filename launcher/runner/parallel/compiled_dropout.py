"""Functions that drop where layers are split and blocks are compiled: called as they are, or named.

Compiled code knows of no function mode, so it breaks off for each dropout that drops something. It
finds torch's functions by name: the names of torch's own modules are given others, and whatever the
user's modules, classes and the model itself hold of them. One that it finds elsewhere (a closure, a
default argument) is compiled, and then draws the same mask on every tensor rank, which is said.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from torch.fx import GraphModule, Node
from torch.nn import functional

from ..reporting.metrics import say

Replacements = Mapping[Any, Callable[..., Any]]
"""By torch's function: what stands in its place."""
Drops = Callable[[Any, Any, Any], bool]
"""Whether a function drops something with these arguments, positional and by name."""
HOMES = (functional, torch)
FRAME = re.compile(r'File "(.+)", line (\d+), in .+\n\s*(.+)')


def replace_names(model: nn.Module, replacements: Replacements) -> None:
    """Put other functions in the places of torch's, wherever the model may look them up by name.

    For the rest of the process, which trains this model alone.

    Args:
        model: whose modules may hold some themselves.
        replacements: of functions of `torch` and `torch.nn.functional`.
    """
    # The compiler looks torch's functions up by name, once: it has to find torch's own there.
    torch.compile(functional.relu, backend="eager")(torch.zeros(1))
    for holder in (*HOMES, *_of_users(), *model.modules()):
        names = vars(holder)
        for name, value in list(names.items()):
            found = _replaced(value, replacements)
            if found is not value and isinstance(holder, type):
                setattr(holder, name, found)
            elif found is not value:
                names[name] = found


def _of_users() -> Iterator[Any]:
    """Yield the modules that are not torch's, and their classes."""
    for name, module in list(sys.modules.items()):
        if module is None or name.partition(".")[0] in ("torch", "builtins"):
            continue
        try:
            values = list(vars(module).values())
        except TypeError:
            continue
        yield module
        for one in values:
            if isinstance(one, type) and one.__module__ == name:
                yield one


def _replaced(value: Any, replacements: Replacements) -> Any:
    """Return what is to stand in the place of a value: itself, where that is no such function."""
    try:
        if isinstance(value, staticmethod):
            found = _replaced(value.__func__, replacements)
            return value if found is value.__func__ else staticmethod(found)
        if type(value) is partial and value.func in replacements:
            return partial(replacements[value.func], *value.args, **value.keywords)
        return replacements.get(value, value) if callable(value) else value
    except TypeError:  # It has no hash.
        return value


def naming_backend(functions: Mapping[Any, Any], drops: Drops) -> Callable[..., Any]:
    """Return torch's usual compiler, which says what is left of functions that drop.

    Args:
        functions: that drop; their keys are torch's own.
        drops: whether one does, as it is called.
    """
    usual: Callable[..., Any] = lookup_backend("inductor")

    @cache
    def warn(line: str) -> None:
        if dist.is_initialized() and dist.get_rank() > 0:
            return
        say(
            f"warning: the dropout at {line} is compiled, and so drops the same places of the"
            " features of every tensor rank. Call torch.nn.functional.dropout there by that name,"
            " or take an nn.Dropout"
        )

    def compiled(graph: GraphModule, inputs: list[torch.Tensor], **how: Any) -> Any:
        for node in graph.graph.nodes:
            is_one = node.op == "call_function" and node.target in functions
            if is_one and drops(node.target, node.args, node.kwargs):
                warn(_line(node))
        return usual(graph, inputs, **how)

    return compiled


def _line(node: Node) -> str:
    """Return the line of the model where a function is called, as `net.py:12 (y = drop(x))`."""
    frames = FRAME.findall(node.stack_trace or "")
    if not frames:
        return str(node)
    path, number, code = frames[-1]
    return f"{path}:{number} ({code.strip()})"
