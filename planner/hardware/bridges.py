"""What all ranks of a node talk over where a bridge joins only some of its cards."""

from __future__ import annotations

import re

from ...catalog.types import Accelerator, Link

CARDS_OF_A_BRIDGE = 2
"""NVLink bridges of PCIe cards join two, unless their name in the catalogue says how many: four of
H200 NVL (NVIDIA H200 NVL product brief) and of MI100 and MI210 (AMD's data sheets)."""
SLOT_BYTES_PER_S = {"PCIe3": 16e9, "PCIe4": 31e9, "PCIe5": 63e9}
"""One direction of 16 lanes, as the catalogue states the links of instances without bridges."""


def link_of_node(link: Link, accelerator: Accelerator, per_node: int) -> Link:
    """Return the link that sets the pace of a ring over all accelerators of a node.

    Args:
        link: the fastest that any of them share, as the instance or the device states it.
        accelerator: the device.
        per_node: how many of them a node has.
    """
    name, rate = link.name or "", link.bytes_per_s
    if rate is None:
        # Where a machine does not say it, the device's own link is taken.
        name, rate = accelerator.link or "", accelerator.link_bytes_per_s
    slot = SLOT_BYTES_PER_S.get(accelerator.form_factor or "")
    if "bridge" not in name or rate is None or slot is None or per_node <= _cards(name):
        return link
    # A ring over more cards than a bridge joins crosses the slots of some of them.
    return link.model_copy(update={"bytes_per_s": min(rate, slot)})


def _cards(name: str) -> int:
    counts = [int(count) for count in re.findall(r"(\d+) cards", name)]
    return max(counts, default=CARDS_OF_A_BRIDGE)
