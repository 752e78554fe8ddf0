"""Where ranks run: one instance type, how many of them, and the links between."""

from __future__ import annotations

from dataclasses import dataclass

from ...catalog.types import Accelerator, Link
from ...profiles.curves.network import Fabric, fabric_of


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
    link_domain: int | None = None
    """Accelerators that the fast link joins, where that is more than one node (a rack of NVL72, the
    largest slice of a TPU)."""
    host_memory_bytes: float | None = None
    """Host memory of one node; None when unknown."""
    vcpus: float | None = None
    """Hardware threads of one node; None when unknown."""

    @property
    def accelerators(self) -> int:
        """How many accelerators there are in all."""
        return self.per_node * self.nodes

    @property
    def domain(self) -> int:
        """How many accelerators share the fast link."""
        return self.link_domain or self.per_node

    @property
    def fabric(self) -> Fabric:
        """The kind of network between the nodes."""
        return fabric_of(self.inter_link.name, self.inter_link.rdma)

    @property
    def domain_bytes_per_s(self) -> float | None:
        """Network rate out of one fast-link domain, one direction; None when unknown."""
        rate = self.inter_link.bytes_per_s
        return None if rate is None else rate * self.domain / self.per_node
