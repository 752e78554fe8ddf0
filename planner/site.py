"""Where ranks run: one instance type, how many of them, and the links between."""

from __future__ import annotations

from dataclasses import dataclass

from ..catalog.types import Accelerator, Link


@dataclass(frozen=True, kw_only=True)
class Site:
    """A set of equal nodes."""

    accelerator: Accelerator
    per_node: int
    nodes: int
    intra_link: Link
    """Per accelerator, one direction."""
    inter_link: Link
    """Per node, one direction."""

    @property
    def accelerators(self) -> int:
        """How many accelerators there are in all."""
        return self.per_node * self.nodes
