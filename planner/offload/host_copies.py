"""What is kept in host memory instead of on the device: time and device memory.

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

Where the model is split over ranks and only the optimizer is on the host, gradients stay on the
device, where the micro-batches of a step add up, and are copied after the last backward pass: so
does DeepSpeed's ZeRO-1 beside a pipeline (runtime/engine.py, `allreduce_gradients`: gradients that
are not partitioned are reduced at the boundary of accumulation).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from ...catalog.vocabulary import Offloaded, Precision
from ...profiles.passes.residence import Loss, Residence
from ...profiles.profile import Profile
from ..constants import Constants
from ..hardware.cluster import Site
from ..hardware.host_links import host_bytes_per_s, host_link_bytes_per_s
from ..software.state_bytes import StateScale
from ..step.data_parallel_step import StepTimes
from .host_memory import HostState, steps_on_host

Array = np.ndarray

NOTHING: frozenset[Offloaded] = frozenset()


def residence_of(offload: Collection[Offloaded], features: Collection[str] = ()) -> Residence:
    """Return what of a step is not on the device all the time."""
    on_host = steps_on_host(offload)
    return Residence(
        parameters_on_host="parameters" in offload,
        optimizer_on_host=on_host,
        activations_on_host="activations" in offload,
        gradients_used_at_once=on_host or "optimizer-in-backward" in features,
        loss=_loss(features),
    )


def _loss(features: Collection[str]) -> Loss:
    if "liger-kernels" in features:
        return "fused"
    return "chunked" if "chunked-cross-entropy" in features else "whole"


def state_on_device(state: StateScale, offload: Collection[Offloaded]) -> StateScale:
    """Return the scale of the state that stays on the device.

    The master copy is the host's, so that the device holds what its layers compute in. Gradients
    are those that the trace holds, unless they live beside offloaded parameters.

    Args:
        state: the scale without offload.
        offload: what the host keeps.
    """
    if not steps_on_host(offload):
        return state
    return StateScale(
        parameters=0 if "parameters" in offload else 1,
        gradients=0 if "parameters" in offload else 1,
        optimizer=0,
        optimizer_temporary=0,
        master_bytes=0,
        zero_2_gathers=state.zero_2_gathers,
        keeps_gathered=state.keeps_gathered,
        whole_in_stages=state.whole_in_stages,
    )


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
    adds_up_on_device: bool = False
    """Whether the gradients of a step are added up on the device, and copied once."""

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
        out_of_backward, accumulate_s, after_s = self.gradient_bytes, self.accumulate_s, 0.0
        if self.adds_up_on_device:
            after_s = out_of_backward / self.link_bytes_per_s
            out_of_backward, accumulate_s = np.zeros_like(out_of_backward), 0.0
        forward = np.maximum(into_forward, self.activation_bytes) / self.link_bytes_per_s
        backward = np.maximum(into_backward, out_of_backward) / self.link_bytes_per_s
        exposed = np.maximum(forward - forward_s, 0) + np.maximum(backward - backward_s, 0)
        none = np.zeros_like(parts.optimizer_s)
        return replace(
            parts,
            optimizer_s=(
                none + self.step_s + (grad_accum - 1) * accumulate_s
                if self.steps
                else parts.optimizer_s
            ),
            host_comm_exposed_s=none + grad_accum * exposed + after_s,
        )


def host_work(
    profile: Profile,
    precision: Precision,
    offload: Collection[Offloaded],
    site: Site,
    constants: Constants,
    *,
    stepped: Array,
    gathered: Array,
    activation_bytes: Array | float = 0.0,
    is_split: bool = False,
) -> HostWork:
    """Return what a rank and its host do in a step.

    Args:
        profile: the model, with its optimizer.
        precision: of the run.
        offload: what the host keeps.
        site: its links and processors.
        constants: how fast those step an optimizer.
        stepped: parameters that a rank steps.
        gathered: parameters of which it keeps a shard.
        activation_bytes: of one micro-batch that leave the device.
        is_split: whether the model is split over ranks.
    """
    state = HostState.of(profile, precision, offload)
    link, memory = host_link_bytes_per_s(site.accelerator), host_bytes_per_s(site, constants)
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
        adds_up_on_device=is_split and "parameters" not in offload,
    )
