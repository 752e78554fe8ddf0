"""Repeated blocks of a model: the transformer layers, the residual stages, found by structure.

`find_blocks` needs only the standard library and torch, because real steps recompute the same
blocks on machines that have nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class BlockRun:
    """Equal blocks of one container: same classes inside, same parameter names and shapes."""

    name: str
    paths: tuple[str, ...]
    modules: tuple[nn.Module, ...]

    @property
    def first(self) -> nn.Module:
        """Return the first block, which stands for all."""
        return self.modules[0]


_CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


def find_blocks(model: nn.Module) -> tuple[BlockRun, ...]:
    """Return the repeated blocks, outermost first: two or more equal children of a container.

    Only children that are themselves made of modules count, so that a list of linears or of norms
    is no run of blocks. Blocks inside a found block are not looked for.
    """
    return tuple(_runs(model, ""))


def cut_paths(model: nn.Module) -> tuple[str, ...]:
    """Return the paths of the blocks between which pipeline stages are cut; () where none repeat.

    They are those of one container, in its order: of several containers with repeated blocks, the
    one whose blocks hold most parameters.
    """
    members: dict[str, dict[str, nn.Module]] = defaultdict(dict)
    for run in find_blocks(model):
        for path, block in zip(run.paths, run.modules, strict=True):
            members[path.rpartition(".")[0]][path] = block
    if not members:
        return ()

    def size(container: str) -> int:
        blocks = members[container].values()
        return sum(parameter.numel() for block in blocks for parameter in block.parameters())

    container = max(members, key=size)
    prefix = f"{container}." if container else ""
    names = [prefix + name for name, _ in model.get_submodule(container).named_children()]
    return tuple(name for name in names if name in members[container])


def _runs(module: nn.Module, prefix: str) -> Iterator[BlockRun]:
    members: set[str] = set()
    if isinstance(module, _CONTAINERS):
        found = _equal_children(module)
        for names in found:
            suffix = "" if len(found) == 1 else f"[{names[0]}…{names[-1]}]"
            yield BlockRun(
                name=(prefix.rstrip(".") + suffix) or type(module).__name__,
                paths=tuple(prefix + name for name in names),
                modules=tuple(module._modules[name] for name in names),  # pyright: ignore[reportArgumentType]
            )
            members.update(names)
    for name, child in module.named_children():
        if name not in members:
            yield from _runs(child, f"{prefix}{name}.")


def _equal_children(container: nn.Module) -> list[list[str]]:
    names_of: dict[object, list[str]] = defaultdict(list)
    for name, child in container.named_children():
        if _is_made_of_modules(child):
            names_of[_structure(child)].append(name)
    return [names for names in names_of.values() if len(names) >= 2]


def _is_made_of_modules(module: nn.Module) -> bool:
    with_parameters = [m for m in module.modules() if any(True for _ in m.parameters(False))]
    return len(with_parameters) >= 2 or (bool(with_parameters) and with_parameters[0] is not module)


def _structure(module: nn.Module) -> object:
    return (
        tuple(type(each) for each in module.modules()),
        tuple((name, p.shape, p.dtype, p.requires_grad) for name, p in module.named_parameters()),
    )
