"""Where an operation runs: which execution of which block, in which phase of the step."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...profile import Phase
from ..kernels.operations import Call


@dataclass
class BlockExecution:
    """One execution of a block, or of the root between blocks, in one phase."""

    phase: Phase
    run: int
    """Number of the block execution in the step; ROOT for the root."""
    block: int | None
    """Index of the block among all repeated blocks."""
    start_tick: int
    calls: list[tuple[Call, str, bool]] = field(default_factory=list)
    """(call, module path, multiplies a weight)."""
    ticks: list[int] = field(default_factory=list)
    """Tick of each call."""
    reruns: list[bool] = field(default_factory=list)
    """Whether each call is one of the forward pass, which a checkpoint runs again."""


@dataclass(frozen=True)
class Place:
    """A module that runs, in the execution of a block that it is part of."""

    run: int
    block: int | None
    module: str
