"""Bytes of state per parameter where they differ from those of the traced step.

| numerics, stack | parameters | gradients | master | two moments |
|---|---|---|---|---|
| fp32, tf32; torch | 4 | 4 | - | 8 |
| amp under torch.autocast | 4, and 2 for the copies autocast keeps | 4 | - | 8 |
| amp by FSDP (MixedPrecisionPolicy) | 4, sharded; gathered in 2 | 4, sharded | - | 8, sharded |
| amp by Megatron or DeepSpeed, fp16 | 2 | 2 | 4 | 8 |
| the same by DeepSpeed's engine of 2021-22 | 2 | 2, and 4 for what the rank steps | 4 | 8 |
| amp by Megatron, bf16 | 2 | 4 (accumulated in fp32) | 4 | 8 |
| the same where gradients are reduced in bf16 (NeMo's recipes) | 2 | 2 | 4 | 8 |
| the same by DeepSpeed beside Megatron | 2 | 2, and 4 to accumulate in | 4 | 8 |
| the same by DeepSpeed's ZeRO elsewhere | 2 | 2, and 4 of the rank's in the step | 4 | 8 |
| bf16 (everything 16-bit) | 2 | 2 | - | 4 |

Sources: torch 2.13 FSDP2 `MixedPrecisionPolicy`; Rajbhandari et al. 2020 (arXiv:1910.02054, section
3.1: 2 + 2 + 12 bytes); Megatron-LM `--accumulate-allreduce-grads-in-fp32`, which bf16 implies, and
core/distributed/param_and_grad_buffer.py (gradients are kept in the dtype they are reduced in);
DeepSpeed 0.5-0.6 runtime/zero/stage_1_and_2.py (`step` makes one fp32 gradient of the partition)
and runtime/bf16_optimizer.py (`update_hp_grads` with clear_lp_grads=False).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from ...catalog.vocabulary import Precision, Stack
from ...profiles.profile import Profile
from ..plan.layout import Layout
from .deepspeed_engine import sums_in_fp32
from .stack import runs_torch_pipelines
from .versions import BF16_REDUCTION


@dataclass(frozen=True, kw_only=True)
class StateScale:
    """What is kept relative to a traced step."""

    parameters: float = 1
    gradients: float = 1
    optimizer: float = 1
    optimizer_temporary: float = 1
    master_bytes: float = 0
    """Per trainable parameter, kept and sharded with the optimizer's state."""
    zero_2_gathers: bool = False
    """Whether ZeRO-2 is FSDP whose blocks keep what they gathered in forward (torch)."""

    keeps_gathered: bool = False
    """Whether those blocks keep it from one micro-batch of a step to the next."""

    copies_buckets: bool = False
    """Whether DDP keeps its buckets beside the gradients."""

    whole_in_stages: bool = False
    """Whether FSDP beside pipeline stages gathers and reduces once a step (torch)."""

    def holds_whole(self, layout: Layout) -> bool:
        """Return whether ranks hold all of a stage's parameters and gradients through a step."""
        return (
            self.whole_in_stages
            and layout.pipeline > 1
            and layout.zero_stage == 3
            and layout.shard > 1
        )

    def gathers_parameters(self, layout: Layout) -> bool:
        """Return whether ranks hold a part of the parameters, and gather the rest to compute."""
        return layout.shard > 1 and (
            layout.zero_stage == 3 or (layout.zero_stage == 2 and self.zero_2_gathers)
        )


AS_TRACED = StateScale()
FP32_AROUND_16_BIT_LAYERS = StateScale(
    parameters=2, gradients=2, optimizer=2, optimizer_temporary=2
)
"""FSDP: the trace of 16-bit layers, with state that stays in fp32."""
MASTER_BESIDE_FP16 = StateScale(optimizer=2, optimizer_temporary=0, master_bytes=4)
MASTER_BESIDE_BF16 = StateScale(gradients=2, optimizer=2, optimizer_temporary=0, master_bytes=4)
DEEPSPEED_FP16 = StateScale(optimizer=2, optimizer_temporary=0, master_bytes=8)
"""The master copy, and the fp32 gradients of the partition."""
DEEPSPEED_ALONE = StateScale(optimizer=2, optimizer_temporary=2, master_bytes=4)
"""ZeRO outside Megatron: those gradients are made for the step, and freed by it."""
DEEPSPEED_BF16 = StateScale(gradients=3, optimizer=2, optimizer_temporary=0, master_bytes=4)


def state_scale(
    precision: Precision,
    stack: Stack,
    *,
    sixteen_bit_layers: bool,
    deepspeed: bool = False,
    features: Collection[str] = (),
) -> StateScale:
    """Return how state differs from the step that was traced.

    Args:
        precision: of the plan.
        stack: Megatron keeps a master copy beside 16-bit weights; FSDP keeps fp32 shards.
        sixteen_bit_layers: whether the trace of 16-bit layers stands for a mixed precision.
        deepspeed: whether DeepSpeed's engine steps the optimizer.
        features: as run records name them.
    """
    of_torch, once = stack.startswith("torch"), runs_torch_pipelines(stack)
    if not sixteen_bit_layers:
        shards = of_torch and not deepspeed
        return replace(AS_TRACED, zero_2_gathers=shards, whole_in_stages=once)
    if deepspeed:
        if of_torch:
            return DEEPSPEED_ALONE
        return DEEPSPEED_BF16 if sums_in_fp32(stack, precision) else DEEPSPEED_FP16
    if not of_torch:
        in_fp32 = keeps_fp32_gradients(precision, features)
        return MASTER_BESIDE_BF16 if in_fp32 else MASTER_BESIDE_FP16
    return replace(FP32_AROUND_16_BIT_LAYERS, zero_2_gathers=True, whole_in_stages=True)


def keeps_fp32_gradients(precision: Precision, features: Collection[str]) -> bool:
    """Return whether Megatron keeps, and so reduces, gradients of 16-bit layers in fp32."""
    return precision in ("bf16-amp", "fp8") and BF16_REDUCTION not in features


def with_unused(
    scale: StateScale, profile: Profile, stack: Stack, layout: Layout, *, deepspeed: bool = False
) -> StateScale:
    """Return the scale of a model with trainable parameters that the loss leaves out.

    The trace has neither gradients nor optimizer state of them, and one device and `fully_shard`
    make none either: torch's optimizers pass over a parameter whose gradient is None, and
    `FSDPParamGroup.post_backward` reduces only gradients that exist. DDP gives them room in its
    buckets, but leaves their gradient None (torch 2.13, torch/csrc/distributed/c10d/reducer.cpp,
    `initialize_buckets` and `finalize_bucket_dense`; the runner passes find_unused_parameters,
    without which DDP ends the second step with an error). Megatron's buffers of gradients
    (core/distributed/param_and_grad_buffer.py) and DeepSpeed's flat partitions
    (runtime/zero/stage_1_and_2.py) hold every parameter that requires a gradient, and step all.

    Args:
        scale: without them.
        profile: of the model.
        stack: of the plan.
        layout: of the plan.
        deepspeed: whether DeepSpeed's engine steps the optimizer.
    """
    whole = profile.trainable_parameters / max(1, profile.trained_parameters)
    if stack == "megatron" or deepspeed:
        return replace(scale, gradients=scale.gradients * whole, optimizer=scale.optimizer * whole)
    is_ddp = (
        stack != "xla"
        and layout.is_data_parallel_only
        and layout.data > 1
        and layout.zero_stage == 0
    )
    return replace(scale, gradients=scale.gradients * whole) if is_ddp else scale
