"""Weights that stand under several names in a model. Standard library and torch only.

The runner cannot keep every such weight one: tensor parallelism makes a new tensor for each module
that it splits, which it ties again where both are split alike, and pipeline stages add up only what
their first and last stage share outside of the blocks. The planner and the runner ask the same
functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from .blocks import cut_paths

TiedNames = tuple[str, str]
"""Two names of one weight, as `named_parameters()` has them."""


ROWS, COLUMNS = 0, 1
SPLIT_OF_LINEAR = {
    "colwise": ROWS,
    "colwise_gather_output": ROWS,
    "colwise_rep": ROWS,
    "rowwise": COLUMNS,
}
"""Words of a tensor-parallel plan → the dimension of a linear's weight that is split."""
SPLIT_OF_EMBEDDING = {"embedding": ROWS, "embedding_rowwise": ROWS}


def tied_modules(model: nn.Module, plan: Mapping[str, Any] | None = None) -> TiedNames | None:
    """Return two names of the first weight that tensor parallelism would make two; None if none.

    Args:
        model: the whole one.
        plan: its tensor-parallel plan; without one every weight that two modules hold counts.
    """
    groups = tied_weights(model)
    if not plan:
        return _first_pair(groups)
    whole = completed_plan(model, plan)
    return _first_pair(group for group in groups if not _is_split_alike(model, whole, group))


def completed_plan(model: nn.Module, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tensor-parallel plan with the embeddings whose head it splits, split alike.

    The plans of Hugging Face's models name the head and not the embedding that it is tied to. Under
    sequence parallelism a plan that leaves the embedding out means something, and is left as it is.
    """
    added: dict[str, Any] = {}
    if "sequence" in plan.values():
        return dict(plan)
    for group in tied_weights(model):
        modules = [name.rpartition(".")[0] for name in group]
        heads = [one for one in modules if SPLIT_OF_LINEAR.get(_word(plan, one)) == ROWS]
        if heads:
            added |= {
                one: "embedding"
                for one in modules
                if _word(plan, one) is None and isinstance(model.get_submodule(one), nn.Embedding)
            }
    return {**plan, **added}


def tied_weights(model: nn.Module) -> list[list[str]]:
    """Return, for each weight that several modules hold, its names."""
    names: dict[int, list[str]] = defaultdict(list)
    # A module that stands in two places is met once: split once, it stays one.
    for path, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                names[id(parameter)].append(f"{path}.{name}" if path else name)
    return [group for group in names.values() if len(group) > 1]


def _is_split_alike(model: nn.Module, plan: Mapping[str, Any], group: list[str]) -> bool:
    """Return whether all names of a weight are split along the same dimension, or none is."""
    splits: set[object] = set()
    for name in group:
        path, _, parameter = name.rpartition(".")
        word = _word(plan, path)
        of_embedding = isinstance(model.get_submodule(path), nn.Embedding)
        known = SPLIT_OF_EMBEDDING if of_embedding else SPLIT_OF_LINEAR
        if word is None:
            splits.add(None)
        elif isinstance(word, str) and word in known and parameter == "weight":
            splits.add(known[word])
        else:
            return False
    return len(splits) == 1


def _word(plan: Mapping[str, Any], path: str) -> Any:
    """Return what a plan says of a module; of several patterns the last counts."""
    found = None
    for pattern, word in plan.items():
        if fnmatchcase(path, pattern):
            found = word
    return found


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
