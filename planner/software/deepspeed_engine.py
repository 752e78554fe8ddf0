"""Memory that DeepSpeed's engine holds beside a model of 16-bit layers, its state and activations.

ZeRO-1 and 2 beside Megatron were DeepSpeed's until 2022-09; elsewhere run records name it. Its
buffers are single blocks as large as what they flatten, which the pool cannot make of the
gradients' own blocks: they add to the peak even where those are free by then. DeepSpeed 0.5-0.6,
runtime/zero/stage_1_and_2.py (`reduce_bucket_size`, `get_grad_norm_direct`, `step`),
runtime/bf16_optimizer.py (`update_hp_grads`), runtime/pipe/engine.py (`_exec_forward_pass` clones
its input).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import numpy as np

from ...catalog.vocabulary import Precision, Stack
from ...profiles.profile import Profile
from ..plan.layout import Layout
from ..plan.setup import Date
from .versions import DEEPSPEED, is_megatron_deepspeed

Bytes = TypeVar("Bytes", float, np.ndarray)
REDUCE_BUCKET_ELEMENTS = 500_000_000
"""`reduce_bucket_size`, the default and what published configurations leave."""
SIXTEEN_BIT_BYTES = 2
FP32_BYTES = 4
DOUBLE_BYTES = 8


def runs_deepspeed(
    stack: Stack, date: Date | None, features: Collection[str], layout: Layout
) -> bool:
    """Return whether DeepSpeed reduces whole gradients of a rank and steps the optimizer."""
    beside_torch = stack.startswith("torch") and DEEPSPEED in features
    is_its = beside_torch or is_megatron_deepspeed(stack, date, features)
    return layout.zero_stage in (1, 2) and is_its


def sums_in_fp32(stack: Stack, precision: Precision) -> bool:
    """Return whether DeepSpeed adds gradients of 16-bit layers up in fp32.

    Its optimizer for bf16 does, which runs beside Megatron; ZeRO alone adds up in the dtype of the
    model (runtime/engine.py, `get_data_types`).
    """
    return stack == "megatron" and precision != "fp16-amp"


def engine_bytes(profile: Profile, layout: Layout, *, in_fp32: bool, trainable: float) -> float:
    """Return bytes of the buffers that reducing and scaling gradients needs on one rank.

    In 16 bits a bucket of gradients is flattened to be reduced, and the norm is taken tensor by
    tensor in double precision, of the part that the rank steps. In fp32 gradients are added to
    their sums tensor by tensor through a copy; one flat block, they are reduced in place.

    Args:
        profile: the whole model, for its largest tensor.
        layout: how tensors and state are divided.
        in_fp32: whether gradients are added up in fp32 (`sums_in_fp32`).
        trainable: trainable parameters on the rank.
    """
    largest = largest_tensor(profile) / layout.tensor
    if in_fp32:
        return FP32_BYTES * largest
    bucket = min(REDUCE_BUCKET_ELEMENTS, trainable) if layout.data > 1 else 0.0
    return SIXTEEN_BIT_BYTES * bucket + DOUBLE_BYTES * min(largest, trainable / layout.shard)


def received_bytes(boundary_bytes: Bytes, in_flight: Bytes) -> Bytes:
    """Return bytes of what a stage received, kept beside the copies that it ran on.

    Args:
        boundary_bytes: of the residual stream of one micro-batch.
        in_flight: micro-batches between their two passes.
    """
    return boundary_bytes * in_flight


def largest_tensor(profile: Profile) -> int:
    """Return the parameters of the model's largest tensor."""
    tensors = [*profile.root_tensors, *(t for group in profile.blocks for t in group.tensors)]
    return max((tensor.rows * tensor.row_elements for tensor in tensors), default=0)
