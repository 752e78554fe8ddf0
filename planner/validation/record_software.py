"""Software, precision and features of a recorded run, where its source leaves them open."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, cast

from ...catalog.errors import GpuplanError, did_you_mean
from ...catalog.types import Accelerator
from ...catalog.vocabulary import PRECISIONS, Offloaded, Precision, Recompute, Stack
from ...profiles.records import RunRecord
from ..plan.layout import Layout
from ..plan.setup import Date
from ..software.kept_memory import FREED_LOGITS, FUSED_LOSS, KEPT_GRADIENTS, KEPT_LOGITS
from ..software.stack import casts_layers
from ..software.versions import (
    BF16_GRADIENTS,
    BF16_REDUCTION,
    BLOCKING,
    BUCKET_COPIES,
    BUCKET_VIEWS,
    CAST_OPERATIONS,
    DEEPSPEED,
    EIGHT_BIT_PARAMETERS,
    ENGINE_IN_MEGATRON,
    FLASH_PACKAGE,
    FOREACH_OPTIMIZER,
    FP8_PARAMETERS,
    FP8_ROWWISE,
    FP32_REDUCTION,
    FREED_GRADIENTS,
    FUSED_OPTIMIZER,
    INT8,
    MXFP8,
    NATIVE_AUTOCAST,
    NVFP4,
    SIXTEEN_BIT_LAYERS,
    TRANSFORMER_ENGINE,
    XLA_OVERLAPS_ON_GPUS,
)

FUSED_ATTENTION_SINCE: dict[Stack, Date] = {
    # scaled_dot_product_attention came with torch 2.0.
    "torch-eager": (2023, 3),
    "torch-compile": (2023, 3),
    # Megatron-LM's --use-flash-attn was opt-in until Transformer Engine became its default spec.
    "megatron": (2024, 1),
    # MaxText: splash attention; the dot product before.
    "xla": (2023, 10),
}
FUSED_ATTENTION_OF_XLA_ON_GPUS: Date = (2024, 2)
"""XLA finds attention and calls cuDNN's on GPUs by default since 2024-02-06 (NVIDIA/JAX-Toolbox,
rosetta/projects/pax/README.md of 2024-03). Transformer Engine's layers for JAX do so where
NVTE_FUSED_ATTN is set, as its containers set it since 24.04, and write scores out before."""
BESIDE: dict[str, Precision] = {MXFP8: "fp8", NVFP4: "fp8", INT8: "bf16-amp"}
"""Formats of products that records name as their precision: what the rest of the run is in."""


class UnstatedError(GpuplanError):
    """A record leaves out, or names, something that cannot be predicted from."""


def precision_of(
    record: RunRecord, accelerator: Accelerator, stack: Stack, assumed: list[str]
) -> Precision:
    """Return the precision the planner predicts the run in."""
    if record.precision is None:
        precision: Precision = "bf16-amp" if stack == "xla" else "fp32"
        assumed.append(f"precision={precision} (default of {stack})")
        return precision
    if record.precision in BESIDE:
        return BESIDE[record.precision]
    if record.precision not in PRECISIONS:
        raise UnstatedError(
            f"precision {record.precision!r} is not predicted yet; known:"
            f" {', '.join((*PRECISIONS, *BESIDE))}.{did_you_mean(record.precision, PRECISIONS)}"
        )
    if record.precision == "tf32" and accelerator.vendor == "AMD":
        # hipBLASLt takes TF32 only behind HIPBLASLT_ALLOW_TF32; torch's own switch is for CUDA.
        assumed.append("precision=fp32 (torch on ROCm leaves TF32 off)")
        return "fp32"
    return cast(Precision, record.precision)


def recompute_of(record: RunRecord, stack: Stack, assumed: list[str]) -> Recompute:
    """Return the recompute that is stated, or the default of the stack."""
    if record.recompute is not None:
        return record.recompute
    if "parameter-offload" in record.features:
        assumed.append("recompute=full (cheaper than the offload of parameters, so tried first)")
        return "full"
    # MaxText's remat_policy is "full" unless told otherwise; torch and Megatron keep everything.
    recompute: Recompute = "full" if stack == "xla" else "none"
    assumed.append(f"recompute={recompute} (default of {stack})")
    return recompute


def offload_of(record: RunRecord, stack: Stack, layout: Layout) -> frozenset[Offloaded]:
    """Return what the record keeps in host memory, as far as it is predicted.

    XLA schedules the copies of its own host offload, whose rates nobody publishes: those steps are
    predicted as if compute hid them.
    """
    found: set[Offloaded] = set()
    if "parameter-offload" in record.features:
        found.add("parameters")
    elif record.offload:
        found.add("optimizer")
    torch = stack.startswith("torch") and layout.is_data_parallel_only
    if "activation-offload" in record.features and torch:
        found.add("activations")
    return frozenset(found)


def is_compiled(record: RunRecord, stack: Stack, assumed: list[str]) -> bool:
    """Return whether an eager file was compiled."""
    if record.compile is not None:
        return record.compile
    if "async-tensor-parallel" in record.features:
        assumed.append("compile=true (torch's asynchronous tensor parallelism needs it)")
        return True
    compiled = stack == "torch-compile"
    if stack.startswith("torch"):
        assumed.append(f"compile={str(compiled).lower()} (default of {stack})")
    return compiled


def params_of(
    record: RunRecord,
    accelerator: Accelerator,
    stack: Stack,
    model_takes: Container[str],
    assumed: list[str],
) -> dict[str, Any]:
    """Return the params of the model, with what other fields of the record say about it."""
    params = dict(record.params)
    if "attention" in model_takes and "attention" not in params:
        params["attention"] = _attention(record, accelerator, stack, assumed)
    if "head" in model_takes and "head" not in params and "squad" in record.model_name.casefold():
        params["head"] = "span"
        assumed.append(f"params.head=span (what {record.model_name} trains)")
    if "channels_last" in model_takes and "channels_last" not in params:
        params["channels_last"] = bool(record.channels_last)
        if record.channels_last is None:
            assumed.append("channels_last=false (torch's default memory order)")
    return params


def _attention(
    record: RunRecord, accelerator: Accelerator, stack: Stack, assumed: list[str]
) -> str:
    if record.attention is not None:
        return "eager" if record.attention == "eager" else "fused"
    on_gpus = stack == "xla" and not accelerator.needs_xla
    since = FUSED_ATTENTION_OF_XLA_ON_GPUS if on_gpus else FUSED_ATTENTION_SINCE[stack]
    date = record.software_date
    attention = "eager" if date is not None and date < since else "fused"
    known = "since" if attention == "fused" else "before"
    where = f"{stack} on GPUs" if on_gpus else stack
    assumed.append(f"attention={attention} (default of {where} {known} {since[0]}-{since[1]:02})")
    return attention


def uses_autocast(
    record: RunRecord, stack: Stack, layout: Layout, offload: frozenset[Offloaded]
) -> bool:
    """Return whether 16-bit compute came from torch.autocast.

    Where the stack does not decide (`casts_layers`), the record may (`autocast`,
    `sixteen-bit-layers`). Apex O2 ran 16-bit layers before torch had autocast, and DeepSpeed does:
    its engine casts the whole model (runtime/engine.py, `_configure_distributed_model`).
    """
    if not casts_layers(stack, layout, offload):
        return False
    if CAST_OPERATIONS in record.features:
        return True
    if "O2" in record.precision_label or {SIXTEEN_BIT_LAYERS, DEEPSPEED} & {*record.features}:
        return False
    date = record.software_date
    return date is None or date >= NATIVE_AUTOCAST


def features_of(
    record: RunRecord, accelerator: Accelerator, stack: Stack, assumed: list[str]
) -> frozenset[str]:
    """Return the features of a run, with those that its software has without saying so."""
    implied: dict[str, str] = {}
    if stack == "torch-eager":
        if FREED_LOGITS not in record.features:
            implied[KEPT_LOGITS] = "a loop's variable holds them until the next step"
        if record.attention == "flash":
            implied[FUSED_LOSS] = "the flash-attn package has one"
    if stack == "torch-compile" and FOREACH_OPTIMIZER not in record.features:
        implied[FUSED_OPTIMIZER] = "what torchtune and torchtitan set beside compile"
    date = record.software_date
    if stack.startswith("torch") and date and date < FREED_GRADIENTS:
        implied[KEPT_GRADIENTS] = "zero_grad of torch before 2.0 writes zeros into them"
    if _is_plain_ddp(record, stack):
        implied[BUCKET_COPIES] = "DDP's buckets lie beside the gradients by default"
    if stack == "xla" and not accelerator.needs_xla and date and date < XLA_OVERLAPS_ON_GPUS:
        implied[BLOCKING] = "XLA on GPUs before 2024-03"
    why = engine_of(record) if stack == "megatron" else None
    if why:
        implied[TRANSFORMER_ENGINE] = why
        of_recipe = FP32_REDUCTION not in record.features
        known = record.precision is not None and (date is None or date >= BF16_GRADIENTS)
        if known and of_recipe:
            implied[BF16_REDUCTION] = "what NeMo's and Megatron-Bridge's recipes set"
        in_8_bits = record.precision == "fp8" and accelerator.vendor == "NVIDIA" and of_recipe
        if in_8_bits and (date is None or date >= EIGHT_BIT_PARAMETERS):
            implied[FP8_PARAMETERS] = "what NVIDIA's fp8 recipes set since 2024-04"
    new = {name: why for name, why in implied.items() if name not in record.features}
    assumed += [f"features={name} ({why})" for name, why in new.items()]
    package = [FLASH_PACKAGE] if record.attention == "flash" else []
    narrow = [record.precision] if record.precision in BESIDE else []
    by_row = [FP8_ROWWISE] if record.fp8_recipe == "rowwise" else []
    return frozenset((*record.features, *new, *package, *narrow, *by_row))


def _is_plain_ddp(record: RunRecord, stack: Stack) -> bool:
    layout = record.layout
    ranks = layout.data is not None and layout.data > 1 and (layout.zero_stage or 0) <= 1
    otherwise = {BUCKET_VIEWS, DEEPSPEED} & {*record.features}
    return ranks and stack.startswith("torch") and not otherwise


def engine_of(record: RunRecord) -> str | None:
    """Return why a run of Megatron had Transformer Engine's layers; None if it did not."""
    date = record.software_date
    if record.precision in ("fp8", MXFP8, NVFP4):
        return "Megatron's only way to 8 and 4 bits"
    of_intel = record.accelerator.startswith("Gaudi")  # Its port of the engine does fp8 only.
    if date is None or record.attention == "eager" or of_intel or DEEPSPEED in record.features:
        return None
    if date >= FUSED_ATTENTION_SINCE["megatron"]:
        return "Megatron's default layers since 2024-01"
    if record.attention == "fused" and date >= ENGINE_IN_MEGATRON:
        return "where Megatron's fused attention is from, since 2023-06"
    return None


def optimizer_of(record: RunRecord, assumed: list[str]) -> str | None:
    """Return the optimizer that was stepped; None is the model file's own."""
    if record.optimizer is None:
        assumed.append("optimizer=the model file's own")
    if record.optimizer == "adamw" and "8-bit-optimizer" in record.features:
        return "adamw8bit"
    return record.optimizer
