"""Weights that stand under several names in a model. Standard library and torch only.

The runner cannot keep every such weight one: tensor parallelism makes a new tensor for each module
that it splits, and pipeline stages add up only what their first and last stage share outside of the
blocks. The planner and the runner ask the same two functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from torch import nn

from .blocks import cut_paths

TiedNames = tuple[str, str]
"""Two names of one weight, as `named_parameters()` has them."""


def tied_modules(model: nn.Module) -> TiedNames | None:
    """Return the names of the first weight that two modules hold; None where there is none."""
    names: dict[int, list[str]] = defaultdict(list)
    # A module that stands in two places is met once: split once, it stays one.
    for path, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                names[id(parameter)].append(f"{path}.{name}" if path else name)
    return _first_pair(names.values())


def tied_blocks(model: nn.Module) -> TiedNames | None:
    """Return the names of the first weight that two blocks, or a block and the rest, share.

    None where there is none; blocks are those between which pipeline stages are cut.
    """
    paths = cut_paths(model)
    names: dict[int, list[str]] = defaultdict(list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    return _first_pair(_one_name_each(shared, paths) for shared in names.values())


def _one_name_each(names: list[str], paths: tuple[str, ...]) -> list[str]:
    """Return one of a weight's names for every block, and for the rest, that it stands in."""
    by_block: dict[str, str] = {}
    for name in names:
        block = next((path for path in paths if name.startswith(f"{path}.")), "")
        by_block.setdefault(block, name)
    return list(by_block.values())


def _first_pair(groups: Iterable[list[str]]) -> TiedNames | None:
    pairs: Iterator[TiedNames] = ((names[0], names[1]) for names in groups if len(names) > 1)
    return next(pairs, None)
