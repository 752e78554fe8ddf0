"""What a stack keeps for its backward pass where the model file does not decide it."""

from __future__ import annotations

from collections.abc import Collection

from ...catalog.vocabulary import Stack
from ...profiles.passes.fused_kernels import Fused
from ...profiles.passes.loss import Loss
from ...profiles.passes.megatron_blocks import AS_WRITTEN, MegatronBlocks
from ...profiles.profile import NUMERICS_OF_PRECISION
from ..plan.layout import Layout
from ..plan.setup import Date, Setup
from .versions import (
    DEEPSPEED,
    ENGINE_IN_MEGATRON,
    FP8_ACTIVATION,
    LOSS_OF_ENGINE,
    MEGATRON_CORE,
    WEIGHTED_INSIDE_EXPERTS,
)

KEPT_LOGITS = "kept-logits"
FREED_LOGITS = "freed-logits"
FUSED_LOSS = "fused-cross-entropy"
RETURNED_LOGITS = "returned-logits"
KEPT_GRADIENTS = "kept-gradients"
BUILT_IN_FP32 = "built-in-fp32"
"""Features, as run records name them. Logits are kept where a variable of the loop holds them until
the next step makes others; gpuplan's own loops, which call a file's `compute_loss`, free them.
They are returned where a model that is compiled whole gives them beside its loss.
Gradients are kept where they live on into the next step, because the loop never clears
them, or because it writes zeros into them (`FREED_GRADIENTS`). A model in 16 bits was built in fp32
where it is cast on the device, not before it is moved there."""


def loss_of(stack: Stack, features: Collection[str] = (), date: Date | None = None) -> Loss:
    """Return how a stack computes cross-entropy where no feature says more.

    Compiling a model's blocks, or the whole model, leaves out the loss that a training loop
    computes from what the model returns.

    Args:
        stack: Megatron has a loss of its own, for split vocabularies.
        features: as run records name them.
        date: of the software; None is today.
    """
    if stack == "megatron":
        return _loss_of_megatron(date)
    if FUSED_LOSS in features:
        return "one kernel beside zeros" if RETURNED_LOGITS in features else "one kernel"
    return "whole"


def compiles_whole(setup: Setup) -> bool:
    """Return whether a compiler sees all that a model computes, and not one block at a time.

    Blocks are compiled by themselves where FSDP, ZeRO or tensor ranks cut between them
    (`compile_model` in launcher/runner/parallel/parallelize.py).
    """
    by_block = setup.by_block or cuts_between_blocks(setup.layout)
    return runs_compiler(setup.stack, compiled=setup.compile) and not by_block


def runs_compiler(stack: Stack, *, compiled: bool) -> bool:
    """Return whether torch's compiler runs: in a compiled file, or of an eager one that is."""
    return stack == "torch-compile" or (stack == "torch-eager" and compiled)


def cuts_between_blocks(layout: Layout) -> bool:
    """Return whether a layout shards or divides a model block by block.

    Context and expert ranks alone leave it whole; they are taken to cut it, as all that split it.
    """
    return layout.zero_stage > 0 or not layout.is_data_parallel_only


def _loss_of_megatron(date: Date | None) -> Loss:
    if date is not None and date < MEGATRON_CORE:
        return "softmax kept"
    first, behind = LOSS_OF_ENGINE
    is_engine_s = date is not None and first <= date < behind
    return "gradient in place" if is_engine_s else "softmax in place"


def megatron_blocks(
    stack: Stack, date: Date | None, features: Collection[str] = ()
) -> MegatronBlocks:
    """Return what blocks keep less than written out, where they are Megatron's.

    Args:
        stack: of the run or plan.
        date: of the software; None is today.
        features: as run records name them.
    """
    if stack != "megatron":
        return AS_WRITTEN
    weights_inside = date is None or date >= WEIGHTED_INSIDE_EXPERTS
    return MegatronBlocks(
        copies_values=True,
        weights_inside_experts=weights_inside,
        activates_8_bits=FP8_ACTIVATION in features,
    )


def keeps_gradients(setup: Setup) -> bool:
    """Return whether gradients are held from their step into the next.

    Apex O2, which has 16-bit layers on one device or under DDP, sets theirs to None before every
    backward pass (apex/amp/_process_optimizer.py, `prepare_backward_with_master_weights`).
    """
    sixteen_bit = NUMERICS_OF_PRECISION[setup.precision] == "amp16" and not setup.autocast
    is_apex = sixteen_bit and setup.layout.shard == 1 and DEEPSPEED not in setup.features
    return KEPT_GRADIENTS in setup.features and not is_apex


def fused_kernels(stack: Stack, date: Date | None, *, compiled: bool) -> Fused:
    """Return what of a block runs in fused kernels, which keep less (`with_fused_kernels`).

    Args:
        stack: a compiler fuses, and Megatron's activation functions are fused by hand beside
            Transformer Engine's layers.
        date: of the software; None is today.
        compiled: whether an eager file is compiled.
    """
    if stack == "megatron":
        since = date is None or date >= ENGINE_IN_MEGATRON
        return "activation functions" if since else "nothing"
    return "blocks" if compiled or stack == "torch-compile" else "nothing"
