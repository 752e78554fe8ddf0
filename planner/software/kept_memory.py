"""What a stack keeps for its backward pass where the model file does not decide it."""

from __future__ import annotations

from collections.abc import Collection

from ...catalog.vocabulary import Stack
from ...profiles.passes.loss import Loss
from ..plan.setup import Date
from .versions import ENGINE_IN_MEGATRON

KEPT_LOGITS = "kept-logits"
FUSED_LOSS = "fused-cross-entropy"
"""Features, as run records name them."""


def loss_of(stack: Stack, features: Collection[str] = ()) -> Loss:
    """Return how a stack computes cross-entropy where no feature says more.

    Compiling a model's blocks, or the whole model, leaves out the loss that a training loop
    computes from what the model returns.

    Args:
        stack: Megatron has a loss of its own, for split vocabularies.
        features: as run records name them.
    """
    if stack == "megatron":
        return "softmax kept"
    return "one kernel" if FUSED_LOSS in features else "whole"


def fuses_kernels(stack: Stack, date: Date | None, *, compiled: bool) -> bool:
    """Return whether blocks keep only what fused kernels need (`with_fused_kernels`).

    Args:
        stack: a compiler fuses, and Megatron's activation functions are fused by hand beside
            Transformer Engine's layers.
        date: of the software; None is today.
        compiled: whether an eager file is compiled.
    """
    if stack == "megatron":
        return date is None or date >= ENGINE_IN_MEGATRON
    return compiled or stack == "torch-compile"
