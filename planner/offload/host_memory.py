"""What is kept in host memory: its bytes per parameter, its sum per node, and words for it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from ...catalog.units import GIB
from ...catalog.vocabulary import OFFLOADABLE, Offloaded, Precision
from ...profiles.profile import CATEGORIES, NUMERICS_OF_PRECISION, Profile
from ..hardware.cluster import Site
from ..plan.plan import EstimatedHostMemory

HOST_BUFFERS = 1.5
"""Host memory over the states themselves, at most: `additional_buffer_factor` of DeepSpeed's
`estimate_zero3_model_states_mem_needs`."""


def steps_on_host(offload: Collection[Offloaded]) -> bool:
    """Return whether the host's processors take the optimizer step."""
    return "optimizer" in offload or "parameters" in offload


@dataclass(frozen=True, kw_only=True)
class HostState:
    """Bytes on the host per parameter that a rank steps."""

    width: int
    """Bytes of one parameter, and of its gradient."""
    optimizer: float
    device_copy: int
    """Bytes of one 16-bit weight on the device; 0 where the host's weights are the only ones."""

    @classmethod
    def of(
        cls, profile: Profile, precision: Precision, offload: Collection[Offloaded]
    ) -> HostState:
        """Return the state of a model: fp32 beside 16-bit layers, else what the layers have."""
        numerics = NUMERICS_OF_PRECISION[precision]
        width = 2 if numerics == "pure16" else 4
        own = 0 if "parameters" in offload else (2 if numerics != "fp32" else 4)
        return cls(width=width, optimizer=_optimizer_state_bytes(profile, width), device_copy=own)

    @property
    def kept_bytes(self) -> float:
        """Parameter, gradient, optimizer's state, and the copy that is sent back."""
        return 2 * self.width + self.optimizer + self.device_copy

    @property
    def stepped_bytes(self) -> float:
        """Read and written by one fused step: gradient in; weights and state in and out."""
        return 3 * self.width + 2 * self.optimizer + self.device_copy


def kept_bytes(
    profile: Profile,
    precision: Precision,
    offload: Collection[Offloaded],
    *,
    stepped: np.ndarray | float,
    activation_bytes: np.ndarray | float,
) -> np.ndarray | float:
    """Return bytes of host memory that one rank needs, of the shape of what it is given.

    Args:
        profile: the model, with its optimizer.
        precision: of the run.
        offload: what the host keeps.
        stepped: parameters that the rank steps.
        activation_bytes: of one micro-batch that leave the device.
    """
    state = HostState.of(profile, precision, offload)
    return activation_bytes + stepped * (state.kept_bytes if steps_on_host(offload) else 0.0)


def host_memory(
    profile: Profile,
    precision: Precision,
    offload: Collection[Offloaded],
    site: Site,
    *,
    stepped: float,
    activation_bytes: float = 0.0,
) -> EstimatedHostMemory:
    """Return the host memory that the ranks of one node need, against what the node has.

    Args:
        profile: the model, with its optimizer.
        precision: of the run.
        offload: what the host keeps.
        site: ranks per node, and the node's memory if it is known.
        stepped: parameters that a rank steps.
        activation_bytes: of one micro-batch that leave the device.
    """
    kept = kept_bytes(
        profile, precision, offload, stepped=stepped, activation_bytes=activation_bytes
    )
    value = float(kept) * site.per_node
    return EstimatedHostMemory(
        value=value,
        low=value,
        high=value * HOST_BUFFERS,
        basis="analytic",
        capacity=site.host_memory_bytes,
    )


def offload_notes(
    offload: Collection[Offloaded], memory: EstimatedHostMemory, *, rank_bytes_per_s: float
) -> list[str]:
    """Return in plain words what is on the host and what the user should check.

    Args:
        offload: what the host keeps.
        memory: what that takes of a node.
        rank_bytes_per_s: rate at which the host is taken to step each rank's optimizer.
    """
    if not offload:
        return []
    notes = [host_memory_note(offload, memory)]
    if memory.capacity is None:
        notes.append("the host memory of this machine is unknown: check that it has that much")
    elif memory.value > memory.capacity:
        notes.append(f"the node has only {memory.capacity / GIB:,.0f} GiB of host memory")
    elif memory.high > memory.capacity:
        notes.append(
            f"close to the node's {memory.capacity / GIB:,.0f} GiB of host memory: buffers of the"
            " software can take half as much again"
        )
    if steps_on_host(offload):
        notes.append(
            "the optimizer steps on the host's processors, whose memory is taken to give each rank"
            f" {rank_bytes_per_s / 1e9:,.0f} GB/s: processors differ, and each rank needs its"
            " share of the cores (OMP_NUM_THREADS, which torchrun sets to 1)"
        )
    return notes


def host_memory_note(offload: Collection[Offloaded], memory: EstimatedHostMemory) -> str:
    """Return in plain words what is in host memory, and how much it takes."""
    return f"{_what(offload)} in host memory: {memory.value / GIB:,.0f} GiB per node"


def ordered(offload: Collection[Offloaded]) -> tuple[Offloaded, ...]:
    """Return what is offloaded in the order of `OFFLOADABLE`."""
    return tuple(one for one in OFFLOADABLE if one in offload)


def _optimizer_state_bytes(profile: Profile, width: int) -> float:
    """Return bytes of optimizer state per trained parameter where a parameter has this width."""
    facts = profile.optimizer
    if facts.name.endswith("8bit"):
        return facts.state_bytes_per_parameter
    memory = profile.steps[0].memory
    gradients = sum(
        size
        for size, category in zip(memory.bytes_base, memory.category, strict=True)
        if category == CATEGORIES.index("gradients")
    )
    traced = gradients / max(1, profile.trained_parameters - profile.sparse_parameters) or width
    return facts.state_bytes_per_parameter * width / traced


def _what(offload: Collection[Offloaded]) -> str:
    names = []
    if "parameters" in offload:
        names.append("sharded parameters, gradients and optimizer state")
    elif "optimizer" in offload:
        names.append("optimizer state")
    if "activations" in offload:
        names.append("saved activations")
    verb = "live" if len(names) > 1 or names[0].endswith("s") or "," in names[0] else "lives"
    return f"{' and '.join(names)} {verb}"
