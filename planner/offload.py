"""What is kept in host memory instead of on the device: time, device memory and host memory.

- "optimizer" (ZeRO-Offload, Ren et al. 2021, arXiv:2101.06840; DeepSpeed `offload_optimizer`): the
  master weights and the optimizer's state live on the host. Reduced gradients are copied there
  while the backward pass runs; then the host's processors step the rank's shard, and the updated
  weights are copied back. The step does not begin before the backward pass has ended (DeepSpeed's
  default: no delayed update).
- "parameters" (torch FSDP2 `CPUOffloadPolicy`, ZeRO-Infinity arXiv:2104.07857): sharded parameters
  and gradients live there as well. Every gather begins with a copy of the rank's shard.
- "activations" (torchtune `OffloadActivations`): what waits for the backward pass is copied away in
  the forward pass and back in the backward pass, on streams of its own.

Copies run beside the kernels, in both directions at once (PCIe and NVLink-C2C are full duplex), so
that a pass takes the longer of its compute and its copies:

    forward   max(compute, parameters in, activations out)
    backward  max(compute, parameters and activations in, gradients out)
    then      bytes of the optimizer step / host memory rate + updated weights / link rate
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from ..catalog.types import Accelerator
from ..catalog.units import GIB
from ..profiles.profile import CATEGORIES, NUMERICS_OF_PRECISION, OptimizerFacts, Profile
from ..profiles.residence import Residence
from .constants import fitted
from .plan import OFFLOADABLE, EstimatedHostMemory, Offloaded, Precision
from .site import Site
from .state_bytes import StateScale
from .step import StepTimes

Array = np.ndarray

NOTHING: frozenset[Offloaded] = frozenset()

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
"""By architecture; other OAM modules (MI250, Gaudi 1 and 2) are of generation 4."""
USUAL_GENERATION = 4
"""Where the link of a board to its host is not published (TPU, Trainium)."""

GRACE_BYTES_PER_S = 2.3e11
"""Of one Grace with its 500 GB/s of LPDDR5X (NVIDIA Grace data sheet), at the share of the peak
that CPU-Adam reached on two Xeons (`host_bytes_per_s`: 117 of 256 GB/s)."""
ACCELERATORS_OF_GRACE = {"GH200-96GB": 1, "GH200-144GB": 1, "GB200": 2, "GB300": 2}
CORE_BYTES_PER_S = 12e9
"""What one core streams: 12-15 GB/s (STREAM on one core of a Xeon, J. McCalpin); two hardware
threads each, as the catalogue counts vCPUs."""
THREADS_PER_CORE = 2
HOST_BUFFERS = 1.5
"""Host memory over the states themselves, at most: `additional_buffer_factor` of DeepSpeed's
`estimate_zero3_model_states_mem_needs`."""


def steps_on_host(offload: Collection[Offloaded]) -> bool:
    """Return whether the host's processors take the optimizer step."""
    return "optimizer" in offload or "parameters" in offload


def residence_of(offload: Collection[Offloaded], features: Collection[str] = ()) -> Residence:
    """Return what of a step is not on the device all the time."""
    on_host = steps_on_host(offload)
    return Residence(
        parameters_on_host="parameters" in offload,
        optimizer_on_host=on_host,
        activations_on_host="activations" in offload,
        gradients_used_at_once=on_host or "optimizer-in-backward" in features,
    )


def state_on_device(
    state: StateScale, offload: Collection[Offloaded], *, resident: bool
) -> StateScale:
    """Return the scale of the state that stays on the device.

    The master copy is the host's, so that the device holds what its layers compute in.

    Args:
        state: the scale without offload.
        offload: what the host keeps.
        resident: whether the gradients are those of a trace with them gone as soon as they are
            used; else none are taken to stay.
    """
    if not steps_on_host(offload):
        return state
    return StateScale(
        parameters=0 if "parameters" in offload else 1,
        gradients=1 if resident and "parameters" not in offload else 0,
        optimizer=0,
        optimizer_temporary=0,
        master_bytes=0,
        zero_2_gathers=state.zero_2_gathers,
    )


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


def host_bytes_per_s(site: Site) -> float:
    """Return the rate at which the host steps an optimizer, for one rank of a full node.

    All ranks of a node step at once and share its memory.
    """
    superchip = ACCELERATORS_OF_GRACE.get(site.accelerator.name)
    if superchip is not None:
        return GRACE_BYTES_PER_S / superchip
    node = fitted("host_bytes_per_s")
    if site.vcpus is not None:
        node = min(node, site.vcpus / THREADS_PER_CORE * CORE_BYTES_PER_S)
    return node / site.per_node


@dataclass(frozen=True, kw_only=True)
class HostState:
    """Bytes on the host per parameter that a rank steps."""

    width: int
    """Of a parameter and of its gradient."""
    optimizer: float
    device_copy: int
    """Of the 16-bit weights on the device; 0 where the host's are the only ones."""

    @classmethod
    def of(
        cls, profile: Profile, precision: Precision, offload: Collection[Offloaded]
    ) -> HostState:
        """Return the state of a model: fp32 beside 16-bit layers, else what the layers have."""
        numerics = NUMERICS_OF_PRECISION[precision]
        width = 2 if numerics == "pure16" else 4
        own = 0 if "parameters" in offload else (2 if numerics != "fp32" else 4)
        return cls(width=width, optimizer=_state_bytes(profile, width), device_copy=own)

    @property
    def kept_bytes(self) -> float:
        """Parameter, gradient, optimizer's state, and the copy that is sent back."""
        return 2 * self.width + self.optimizer + self.device_copy

    @property
    def stepped_bytes(self) -> float:
        """Read and written by one fused step: gradient in; weights and state in and out."""
        return 3 * self.width + 2 * self.optimizer + self.device_copy


@dataclass(frozen=True, kw_only=True)
class HostWork:
    """What one rank and its host do in a step; arrays broadcast to [L, V]."""

    link_bytes_per_s: float
    step_s: Array
    """The optimizer step, with what leads to it and back."""
    accumulate_s: Array
    """Adding the gradients of one more micro-batch to those on the host."""
    gathered_bytes: Array
    """Parameters to the device, in each pass of a micro-batch."""
    gradient_bytes: Array
    """To the host, in each backward pass."""
    activation_bytes: Array
    """To the host and back, in each micro-batch."""
    steps: bool
    """Whether the optimizer step is the host's."""

    def added_to(
        self, parts: StepTimes, *, forward_s: Array, backward_s: Array, grad_accum: Array
    ) -> StepTimes:
        """Return the parts of the step with the host's.

        Args:
            parts: of the step without offload.
            forward_s: compute of one micro-batch that copies run beside, and
            backward_s: of its backward pass.
            grad_accum: micro-batches a step.
        """
        into_forward = self.gathered_bytes
        into_backward = self.gathered_bytes + self.activation_bytes
        forward = np.maximum(into_forward, self.activation_bytes) / self.link_bytes_per_s
        backward = np.maximum(into_backward, self.gradient_bytes) / self.link_bytes_per_s
        exposed = np.maximum(forward - forward_s, 0) + np.maximum(backward - backward_s, 0)
        none = np.zeros_like(parts.optimizer_s)
        return replace(
            parts,
            optimizer_s=(
                none + self.step_s + (grad_accum - 1) * self.accumulate_s
                if self.steps
                else parts.optimizer_s
            ),
            host_comm_exposed_s=none + grad_accum * exposed,
        )


def host_work(
    profile: Profile,
    precision: Precision,
    offload: Collection[Offloaded],
    site: Site,
    *,
    stepped: Array,
    gathered: Array,
    activation_bytes: Array | float = 0.0,
) -> HostWork:
    """Return what a rank and its host do in a step.

    Args:
        profile: the model, with its optimizer.
        precision: of the run.
        offload: what the host keeps.
        site: its links and processors.
        stepped: parameters that a rank steps.
        gathered: parameters of which it keeps a shard.
        activation_bytes: of one micro-batch that leave the device.
    """
    state = HostState.of(profile, precision, offload)
    link, memory = host_link_bytes_per_s(site.accelerator), host_bytes_per_s(site)
    stepped = stepped if steps_on_host(offload) else np.zeros_like(stepped)
    gathered = gathered if "parameters" in offload else np.zeros_like(gathered)
    return HostWork(
        link_bytes_per_s=link,
        step_s=stepped * (state.stepped_bytes / memory + state.device_copy / link),
        accumulate_s=stepped * 3 * state.width / memory,
        gathered_bytes=gathered * state.width,
        gradient_bytes=stepped * state.width,
        activation_bytes=np.asarray(activation_bytes),
        steps=steps_on_host(offload),
    )


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
    kept = activation_bytes
    if steps_on_host(offload):
        kept += stepped * HostState.of(profile, precision, offload).kept_bytes
    value = kept * site.per_node
    return EstimatedHostMemory(
        value=value,
        low=value,
        high=value * HOST_BUFFERS,
        basis="analytic",
        capacity=site.host_memory_bytes,
    )


def offload_notes(
    offload: Collection[Offloaded], memory: EstimatedHostMemory, site: Site
) -> list[str]:
    """Return in plain words what is on the host and what a person should look after."""
    if not offload:
        return []
    notes = [host_memory_note(offload, memory)]
    if memory.capacity is None:
        notes.append("the host memory of this machine is unknown: see that it has so much")
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
            f" {host_bytes_per_s(site) / 1e9:,.0f} GB/s: processors differ, and each rank needs its"
            " share of the cores (OMP_NUM_THREADS, which torchrun sets to 1)"
        )
    return notes


def host_memory_note(offload: Collection[Offloaded], memory: EstimatedHostMemory) -> str:
    """Return in plain words what is in host memory, and how much it takes."""
    return f"{_what(offload)} in host memory: {memory.value / GIB:,.0f} GiB per node"


def ordered(offload: Collection[Offloaded]) -> tuple[Offloaded, ...]:
    """Return what is offloaded in the order of `OFFLOADABLE`."""
    return tuple(one for one in OFFLOADABLE if one in offload)


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


def _state_bytes(profile: Profile, width: int) -> float:
    """Return bytes of optimizer state per parameter where a parameter has this width."""
    facts: OptimizerFacts = profile.optimizer
    if facts.name.endswith("8bit"):
        return facts.state_bytes_per_parameter
    memory = profile.steps[0].memory
    gradients = sum(
        size
        for size, category in zip(memory.bytes_base, memory.category, strict=True)
        if category == CATEGORIES.index("gradients")
    )
    traced = gradients / max(1, profile.trainable_parameters) or width
    return facts.state_bytes_per_parameter * width / traced
