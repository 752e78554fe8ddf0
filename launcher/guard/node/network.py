"""Whether the network between nodes is the one that was planned, as far as a node can see it.

Interfaces are counted on every node. What an all-reduce over all of them reached stands in
`network.json` of the folder of results, which gpuplan's runner writes before its first step.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..orders import NetworkOrders

NETWORK_FILE = "network.json"
INTERFACES = Path("/sys/class/infiniband")
"""One entry for each interface of EFA, InfiniBand or RoCE."""
ENOUGH = 0.5
"""Below this share of what was planned, the network is another one."""
GB = 1e9


@dataclass(frozen=True)
class NetworkSeen:
    """What was seen of the network; None where it is not known."""

    interfaces: int | None = None
    """Of this node."""
    bytes_per_s: float | None = None
    """Bus bandwidth of an all-reduce over all processes."""
    over: str | None = None
    """What NCCL says it uses: `AWS Libfabric`, `IB`, `Socket`."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as the state file has it."""
        return asdict(self)


def count_interfaces(folder: Path = INTERFACES) -> int:
    """Return how many network interfaces of the fast kind this node has."""
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:
        return 0


def read_network(folder: Path, interfaces: int | None) -> NetworkSeen:
    """Return what is seen by now.

    Args:
        folder: of results.
        interfaces: of this node; None where they are not counted.
    """
    try:
        said = json.loads((folder / NETWORK_FILE).read_text(encoding="utf-8"))
        rate, over = said.get("all_reduce_bytes_per_s"), said.get("over")
    except (OSError, ValueError, AttributeError):
        rate, over = None, None
    is_rate = isinstance(rate, (int, float)) and not isinstance(rate, bool)
    return NetworkSeen(
        interfaces=interfaces,
        bytes_per_s=rate if is_rate else None,
        over=over if isinstance(over, str) else None,
    )


def shortfall(planned: NetworkOrders | None, seen: NetworkSeen) -> str | None:
    """Return how the network is less than half of the plan, as a sentence; None where it is not."""
    if planned is None:
        return None
    found = []
    if _is_less(seen.interfaces, planned.interfaces):
        found.append(f"this node has {seen.interfaces} of {planned.interfaces} interfaces")
    if _is_less(seen.bytes_per_s, planned.bytes_per_s):
        over = f" over {seen.over}" if seen.over else ""
        rates = f"{_gb(seen.bytes_per_s)} of {_gb(planned.bytes_per_s)} GB/s"
        found.append(f"an all-reduce reaches {rates}{over}")
    if not found:
        return None
    return f"The network between the nodes is not the one that was planned: {', '.join(found)}."


def _is_less(seen: float | None, planned: float | None) -> bool:
    return seen is not None and planned is not None and seen < ENOUGH * planned


def _gb(rate: float | None) -> str:
    return "?" if rate is None else f"{rate / GB:.3g}"
