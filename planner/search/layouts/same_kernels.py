"""Data-parallel layouts whose ranks run the same kernels, which are timed once for all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ....catalog.vocabulary import Offloaded, Stack
from ...plan.layout import Layout
from ...software.kept_memory import cuts_between_blocks
from ...software.stack import casts_layers


@dataclass(frozen=True, kw_only=True)
class SameKernels:
    """Layouts with what their ranks run alike."""

    autocast: bool
    """Whether casts surround the layers; where nothing is cast, True."""
    by_block: bool
    """Whether blocks are compiled one by one, where that makes a difference."""
    layouts: tuple[Layout, ...]


def by_kernels(
    layouts: Iterable[Layout],
    stack: Stack,
    *,
    mixed: bool,
    sees_loss: bool,
    offload: Collection[Offloaded],
) -> list[SameKernels]:
    """Return layouts by the kernels of their ranks.

    Args:
        layouts: data-parallel ones.
        stack: of all of them.
        mixed: whether precision is mixed: autocast casts around the layers, or FSDP does outside.
        sees_loss: whether a compiler makes one kernel of the model's loss unless blocks are
            compiled one by one.
        offload: what the host keeps.
    """
    groups: dict[tuple[bool, bool], list[Layout]] = {}
    for layout in layouts:
        itself = mixed and not casts_layers(stack, layout, offload)
        by_block = sees_loss and cuts_between_blocks(layout)
        groups.setdefault((itself, by_block), []).append(layout)
    return [
        SameKernels(autocast=not itself, by_block=by_block, layouts=tuple(same))
        for (itself, by_block), same in sorted(groups.items())
    ]
