"""Rates between a device, its host and the host's memory."""

from __future__ import annotations

from ...catalog.types import Accelerator
from ..constants import Constants
from .cluster import Site

PCIE_BYTES_PER_S = {3: 12e9, 4: 25e9, 5: 52e9}
"""One direction of 16 lanes, pinned memory: 12 GB/s on V100 (CUDA's bandwidthTest), 25 on A100, 52
to 55 on H100 (nvbandwidth, host_to_device_memcpy_ce 55.6): 0.76 to 0.85 of 15.8, 31.5 and 63."""
C2C_BYTES_PER_S = 350e9
"""NVLink-C2C of a Grace superchip: 450 GB/s one direction by data sheet; copies reach 375 to the
device and 297 to the host (Fusco et al. 2024, arXiv:2408.11556)."""
PCIE_GENERATION_OF_FORM = {
    "PCIe3": 3, "SXM2": 3, "SXM3": 3, "PCIe4": 4, "PCIe4x8": 4, "SXM4": 4,
    "PCIe5": 5, "SXM5": 5, "SXM6/HGX": 5,
}  # fmt: skip
PCIE_GENERATION_OF_OAM = {"CDNA3": 5, "CDNA4": 5, "Gaudi3": 5}
"""PCIe generation of an OAM module, by architecture; others (MI250, Gaudi 1 and 2) have 4."""
USUAL_GENERATION = 4
"""Where the link of a board to its host is not published (TPU, Trainium)."""

GRACE_BYTES_PER_S = 2.3e11
"""What one Grace with its 500 GB/s of LPDDR5X (NVIDIA Grace data sheet) streams, at the share of
the peak that CPU-Adam reached on two Xeons (`host_bytes_per_s`: 117 of 256 GB/s)."""
ACCELERATORS_OF_GRACE = {"GH200-96GB": 1, "GH200-144GB": 1, "GB200": 2, "GB300": 2}
CORE_BYTES_PER_S = 12e9
"""What one core streams: 12-15 GB/s (STREAM on one core of a Xeon, J. McCalpin); two hardware
threads each, as the catalogue counts vCPUs."""
THREADS_PER_CORE = 2


def host_link_bytes_per_s(accelerator: Accelerator) -> float:
    """Return the rate of copies between a device and its host, one direction."""
    if accelerator.name in ACCELERATORS_OF_GRACE:
        return C2C_BYTES_PER_S
    form = accelerator.form_factor or ""
    generation = PCIE_GENERATION_OF_FORM.get(form)
    if form == "OAM":
        generation = PCIE_GENERATION_OF_OAM.get(accelerator.arch, USUAL_GENERATION)
    lanes = 0.5 if form.endswith("x8") else 1
    return lanes * PCIE_BYTES_PER_S[generation or USUAL_GENERATION]


def host_bytes_per_s(site: Site, constants: Constants) -> float:
    """Return the rate at which the host steps an optimizer, for one rank of a full node.

    All ranks of a node step at once and share its memory.
    """
    superchip = ACCELERATORS_OF_GRACE.get(site.accelerator.name)
    if superchip is not None:
        return GRACE_BYTES_PER_S / superchip
    node = constants["host_bytes_per_s"]
    if site.vcpus is not None:
        node = min(node, site.vcpus / THREADS_PER_CORE * CORE_BYTES_PER_S)
    return node / site.per_node
