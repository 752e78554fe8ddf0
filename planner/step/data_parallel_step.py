"""One optimizer step of a data-parallel job: compute, exposed communication, optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from ...catalog.vocabulary import Stack
from ...profiles.curves.device_curves import DeviceCurves
from ...profiles.profile import OptimizerFacts, Profile
from ..plan.layout import Layout
from ..software.stack import StackFacts, adds_up_shards
from .data_parallel_comm import Traffic
from .kernels.kernel_totals import MicroBatchTimes

Array = np.ndarray


@dataclass(frozen=True)
class StepTimes:
    """Seconds of one optimizer step by part, [L, V] over layouts and variants."""

    compute_s: Array
    memory_bound_s: Array
    launch_s: Array
    optimizer_s: Array
    data_comm_exposed_s: Array
    tensor_comm_s: Array | float = 0.0
    context_comm_s: Array | float = 0.0
    expert_comm_s: Array | float = 0.0
    pipeline_bubble_s: Array | float = 0.0
    host_comm_exposed_s: Array | float = 0.0

    @property
    def total_s(self) -> Array:
        """[L, V] the whole step."""
        return (
            self.compute_s
            + self.memory_bound_s
            + self.launch_s
            + self.optimizer_s
            + self.data_comm_exposed_s
            + self.tensor_comm_s
            + self.context_comm_s
            + self.expert_comm_s
            + self.pipeline_bubble_s
            + self.host_comm_exposed_s
        )

    def at(self, *place: int) -> StepTimes:
        """Return the step in one place of the arrays, [1, 1]."""
        shape = np.shape(self.total_s)
        parts = (np.broadcast_to(getattr(self, one.name), shape) for one in fields(self))
        return StepTimes(*(one[place].reshape(1, 1) for one in parts))


def step_times(
    times: MicroBatchTimes,
    traffic: Traffic,
    *,
    optimizer_s: Array,
    step_overhead_s: float,
    grad_accum: Array,
    accumulation_s: Array | float = 0.0,
    keeps_gradients: bool = False,
    covering: Array | float = 1.0,
) -> StepTimes:
    """Return the parts of one optimizer step on every rank, seconds.

    Args:
        times: kernels of one micro-batch, [V].
        traffic: collectives of the data dimension, [L, 1].
        optimizer_s: the optimizer step, [L, 1].
        step_overhead_s: host work once a step.
        grad_accum: [L, V] micro-batches per step.
        accumulation_s: adding the gradients of a further micro-batch to those before it, [L, 1].
        keeps_gradients: whether the first micro-batch's are added to those of the step before.
        covering: passes of a micro-batch that collectives of once a step can hide under.
    """
    compute = grad_accum * times.compute_s
    adding = (grad_accum - (0 if keeps_gradients else 1)) * accumulation_s
    memory = grad_accum * times.memory_bound_s + adding
    busy = grad_accum * (times.forward_s + times.backward_s) + adding
    return StepTimes(
        compute_s=compute,
        memory_bound_s=memory,
        launch_s=busy - compute - memory + step_overhead_s,
        optimizer_s=optimizer_s + np.zeros_like(busy),
        data_comm_exposed_s=traffic.exposed_s(
            times.forward_s, times.backward_s, grad_accum, covering=covering
        ),
    )


def optimizer_s(
    profile: Profile,
    layouts: Sequence[Layout],
    curves: DeviceCurves,
    stack: StackFacts,
    *,
    samples: Array,
    facts: OptimizerFacts | None = None,
) -> Array:
    """Return [L, 1] seconds of the optimizer step on a rank: its bytes, or its launches if longer.

    ZeRO of any stage steps only the rank's own shard. Sparse gradients have the rows of every
    sample of the step: [L, V] seconds then.

    Args:
        profile: of the model.
        layouts: data-parallel ones.
        curves: of the device.
        stack: of the plan.
        samples: [L, V] that a rank's step is of.
        facts: of the optimizer in the precision (`KeptSteps.optimizer`); None: the profile's.
    """
    ranks = np.array([layout.shard if layout.zero_stage else 1 for layout in layouts])
    stepped = (profile.trained_parameters / ranks)[:, None]
    facts = facts or profile.optimizer
    rows = facts.step_bytes_per_sample
    rows_bytes = rows * samples if rows else 0.0
    return optimizer_step_s(stepped, profile, curves, stack, rows_bytes=rows_bytes, facts=facts)


def optimizer_step_s(
    parameters: Array,
    profile: Profile,
    curves: DeviceCurves,
    stack: StackFacts,
    *,
    rows_bytes: Array | float = 0.0,
    facts: OptimizerFacts | None = None,
) -> Array:
    """Return seconds of the optimizer step over this many parameters of a rank, element-wise.

    Multi-tensor kernels take a fixed number of elements per launch: a rank that holds a share of
    the model launches that share of them, but not fewer than there are tensors.

    Args:
        parameters: that the rank steps.
        profile: of the model.
        curves: of the device.
        stack: of the plan.
        rows_bytes: that the rows of sparse gradients move.
        facts: of the optimizer in the precision (`KeptSteps.optimizer`); None: the profile's.
    """
    facts = facts or profile.optimizer
    moved = parameters * facts.step_bytes_per_parameter * stack.optimizer_traffic + rows_bytes
    device = curves.memory_bound_s(moved, kind="optimizer", dtype="fp32")
    share = parameters / max(1, profile.trained_parameters)
    fewest = min(facts.launches, profile.parameter_tensors)
    launches = np.clip(facts.launches * share, fewest, facts.launches)
    loop_s = profile.parameter_tensors * stack.optimizer_loop.tensor_s
    host = np.maximum(launches * stack.optimizer_launch_s, loop_s)
    return device + host if stack.optimizer_loop.waits else np.maximum(device, host)


def accumulation_s(
    profile: Profile,
    layouts: Sequence[Layout],
    curves: DeviceCurves,
    bytes_per_parameter: float,
    *,
    stack: Stack,
) -> Array:
    """Return [L, 1] seconds that adding one micro-batch's gradients to the others' takes a rank.

    Args:
        profile: of the model.
        layouts: data-parallel ones.
        curves: of the device.
        bytes_per_parameter: that adding one gradient moves.
        stack: decides whether whole gradients are added (`adds_up_shards`).
    """
    ranks = np.array([one.shard if adds_up_shards(stack, one) else 1 for one in layouts])
    moved = bytes_per_parameter * summed_parameters(profile) / ranks
    return curves.memory_bound_s(moved, kind="optimizer", dtype="fp32")[:, None]


def summed_parameters(profile: Profile) -> int:
    """Return how many parameters' gradients are added up over micro-batches.

    Sparse ones are not: torch puts their rows one behind the other (aten SparseCUDATensorMath.cu,
    add_out_sparse_cuda), which moves little beside the look-ups that make them.
    """
    return profile.trained_parameters - profile.sparse_parameters
