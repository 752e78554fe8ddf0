"""Operands of products in 8 bits: what ranks gather of them, and how blocks keep them.

Sources: torchao (2026-08), float8/float8_tensor_parallel.py (`Float8ColwiseParallel`,
`PrepareFloat8ModuleInput`, and `NoopFwToFloat8BwDynamic` of the gradient) and float8_linear.py
(`matmul_with_hp_or_float8_args`); torchtitan (2025-06), models/llama3/infra/parallelize.py
(`enable_float8_tensorwise_tp`: not for scales by row); Transformer Engine 0.6 (2023-03) to 2.18,
pytorch/module/layernorm_linear.py, linear.py, base.py (`grad_output_preprocess`) and distributed.py
(`gather_along_first_dim`); Megatron-LM, core/transformer/attention.py (`set_save_original_input`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...catalog.vocabulary import Precision, Recompute, Stack
from ...profiles.passes.fp8_operands import KeptOperands
from ..plan.layout import Layout
from ..plan.setup import Date
from .versions import FP8_PARAMETERS, FP8_ROWWISE, MXFP8, NVFP4

ATTENTION_KEPT_ONCE: Date = (2025, 8)
"""Megatron-LM, merged 2025-08-19: the layer behind attention keeps its input as attention does, not
a copy in 8 bits beside it; with Transformer Engine 2.6 and every recipe but delayed scaling."""


@dataclass(frozen=True, kw_only=True)
class GatheredBytes:
    """Bytes an element of what sequence parallelism gathers for products of blocks."""

    forward_bytes: float = 2
    """Inputs of column layers."""
    backward_bytes: float = 2
    """Gradients of what row layers gave."""

    @property
    def is_cast_before(self) -> bool:
        """Whether ranks cast their own part, not what they gathered."""
        return self.forward_bytes < AS_COMPUTED.forward_bytes


AS_COMPUTED = GatheredBytes()
CAST_BY_TENSOR = GatheredBytes(forward_bytes=1, backward_bytes=1)
CAST_BY_BLOCK = GatheredBytes(forward_bytes=1, backward_bytes=2)
"""Scales of a block of 32 follow its direction: the weight's gradient takes another copy of the
output's gradient than the input's does, and both are gathered (`_all_gather_mxfp8`)."""
CAST_TO_4_BITS = GatheredBytes(forward_bytes=0.5, backward_bytes=1)
"""`_all_gather_nvfp4`."""


def cached_weight_bytes(
    stack: Stack, precision: Precision, features: frozenset[str] = frozenset()
) -> float:
    """Return bytes a parameter of the 8-bit copies that layers of blocks keep of their weights.

    Transformer Engine casts a 16-bit weight in the first micro-batch and keeps the copy, and its
    transpose, for the others (pytorch/module/base.py, `get_weight_workspace`). Blackwell needs no
    transpose of what has one scale a tensor: there this bounds it from above. torchao casts anew.

    Args:
        stack: Transformer Engine's layers are Megatron's.
        precision: of the run.
        features: as run records name them; 8-bit parameters have no copies. Of MXFP8 and NVFP4
            nobody measured any, and NVIDIA's recipes keep no 16-bit weights beside them.
    """
    without = {FP8_PARAMETERS, MXFP8, NVFP4} & features
    return 2.0 if stack == "megatron" and precision == "fp8" and not without else 0.0


def gathered_bytes(
    stack: Stack, precision: Precision, features: frozenset[str] = frozenset()
) -> GatheredBytes:
    """Return what ranks gather for products.

    Args:
        stack: torchao's layers with torch, Transformer Engine's with Megatron; of XLA nothing is
            known.
        precision: of the run.
        features: as run records name them.
    """
    if precision != "fp8" or stack == "xla":
        return AS_COMPUTED
    if stack != "megatron":
        return AS_COMPUTED if FP8_ROWWISE in features else CAST_BY_TENSOR
    if NVFP4 in features:
        return CAST_TO_4_BITS
    return CAST_BY_BLOCK if MXFP8 in features else CAST_BY_TENSOR


def kept_operands(
    stack: Stack,
    precision: Precision,
    layout: Layout,
    date: Date | None = None,
    features: frozenset[str] = frozenset(),
    *,
    compiled: bool = False,
    recompute: Recompute = "none",
) -> KeptOperands:
    """Return how blocks keep what 8-bit products multiply until their backward pass.

    Transformer Engine's layers keep the copy in 8 bits. torchao's keep what they were given, in 16
    bits but for what tensor ranks gathered in 8. Compiled, the cast is made again from what other
    kernels keep anyway; where blocks are recomputed it is made once, when they run again.
    """
    if precision != "fp8" or stack == "xla":
        return "16 bits"
    if stack == "megatron":
        once = date is None or date >= ATTENTION_KEPT_ONCE
        return "8 bits" if once else "8 bits, attention's twice"
    is_gathered = layout.sequence_parallel and layout.tensor > 1
    if is_gathered and gathered_bytes(stack, precision, features).is_cast_before:
        return "8 bits"
    if not compiled and stack != "torch-compile":
        return "16 bits"
    return "made again" if recompute == "none" else "8 bits"
