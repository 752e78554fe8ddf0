"""What software of an earlier date did differently from the kernels and stacks measured today.

The keys are the stack, the date of the software and the architecture of the device. A user's plan
is for today's software; dates matter when past runs are predicted (`gpuplan validate`).
"""

from __future__ import annotations

import numpy as np

from ...catalog.types import Accelerator
from ...catalog.vocabulary import Precision, Stack
from ...profiles.profile import KernelKind
from ..constants import Constants
from ..plan.layout import Layout
from ..plan.setup import Date

Array = np.ndarray

FLASH_2: dict[Stack, Date] = {
    # torch 2.2: "scaled_dot_product_attention now supports FlashAttention-2" (its release notes).
    "torch-eager": (2024, 1),
    "torch-compile": (2024, 1),
    # The package itself (arXiv:2307.08691), which Megatron calls.
    "megatron": (2023, 7),
    "xla": (2023, 7),
}
"""FlashAttention-2; FlashAttention-1 and its Triton port before."""
FLASH_PACKAGE = "flash-attention-package"
"""Feature: attention is the flash-attn package's, which a record calls "flash", torch's "fused"."""
FLASH_3: Date = (2024, 7)
"""FlashAttention-3 (arXiv:2407.08608) and cuDNN's fused attention of that year, for Hopper."""
CUDNN_FIRST: Date = (2026, 7)
"""torch 2.13: scaled_dot_product_attention takes cuDNN's kernels first where the compute capability
is 9.0 or 10.0 (`check_prefer_cudnn_attention` in its sdp_utils.cpp; its wheels bring cuDNN 9.15 and
later). Not on 10.3 (B300, GB300), nor on cards (12.0)."""
_CUDNN_FIRST_ON = ("Hopper", "Blackwell")
TUNED_ATTENTION: Date = (2025, 1)
"""cuDNN 9.5 and later, FlashAttention-3's and 4's tuned backward."""
_GENERATION = {"Blackwell Ultra": "Blackwell"}
NATIVE_AUTOCAST: Date = (2022, 1)
"""Mixed precision was Apex O2 (16-bit layers) before torch 1.6 brought torch.autocast (2020-07),
and stayed so in most training scripts until Apex gave its amp up."""

NATIVE_GELU: Date = (2021, 1)
"""torch.nn.functional.gelu came with torch 1.4 (2020-01); published code took it up by the end of
that year (DeepLearningExamples' BERT went back and forth in 2020-04)."""
FOREACH_OPTIMIZERS: Date = (2023, 3)
"""torch 2.0 made its optimizers step all tensors of a list at once."""
LEAN_MEGATRON: Date = (2025, 1)
"""Megatron with Transformer Engine and CUDA graphs whatever the recipe, as all use it since."""
TRANSFORMER_ENGINE = "transformer-engine"
"""Feature: layers are Transformer Engine's, in C++, with user buffers for tensor parallelism."""
ENGINE_IN_MEGATRON: Date = (2023, 6)
"""Megatron-LM and NeMo took Transformer Engine's layers (release notes of Megatron-LM 23.05)."""
FUSED_ACCUMULATION: Date = (2022, 5)
"""Megatron-LM's gradient_accumulation_fusion, on by default since: bf16 gradients are added into
the fp32 sum by the product that makes them."""
BF16_REDUCTION = "reduce-bf16"
"""Feature: FSDP's MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)."""
FUSED_OPTIMIZER = "fused-optimizer"
"""Feature: one kernel steps many parameters (torch's fused=True, apex)."""
BLOCKING = "blocking-collectives"
"""Feature: nothing runs beside the collectives of the data dimension."""
LARGE_BUCKETS = "large-buckets"
"""Feature: gradients are reduced in a few large buckets beside torch's layers (apex, NeMo)."""
XLA_OVERLAPS_ON_GPUS: Date = (2024, 3)
"""XLA for GPUs hides collectives by default: its latency-hiding scheduler and pipelined collectives
were flags of 2023 (the same cells of JAX-Toolbox's tables take 5 s less at 175B since)."""
NVFP4, INT8 = "nvfp4", "int8"
"""Features: linear layers multiply in 4 bits beside a run in fp8, or in int8 beside one in bf16."""
_NARROW_PRODUCTS = {
    # Transformer Engine on B300, casts included: 2.7-3.3 PFLOP/s in NVFP4, 2.0-2.4 in fp8 recipes
    # (its benchmarks, as gathered on 2026-11-22).
    NVFP4: 0.74,
    # Google's AQT on TPU v5e: steps 1.2 to 1.4 times as fast (its announcement of 2023-11,
    # recalled), of which products are four fifths.
    INT8: 0.71,
}
DISTRIBUTED_OPTIMIZER: Date = (2022, 9)
"""Megatron-LM's --use-distributed-optimizer, in the 2022-09 releases."""
FUSED_DISPATCH = "deepep"
"""Feature: tokens go to experts and back by DeepEP's kernels, permuted on the way."""
LEAN_EXPERTS: Date = (2026, 4)
"""Megatron's recipes with CUDA graphs around experts, HybridEP and fused grouped products: the same
cells of Megatron-Bridge's tables take 1.4 to 1.7 times less than a year before."""
CUDA_12: Date = (2022, 12)
"""CUDA 12.0; cuBLAS of CUDA 11 before."""
FIRST_SOLD: dict[str, Date] = {
    "Volta": (2017, 6),
    "Turing": (2018, 9),
    "Ampere": (2020, 5),
    "Ada": (2022, 10),
    "Hopper": (2022, 10),
    "Blackwell": (2024, 12),
    "CDNA3": (2023, 12),
}
"""First devices of an architecture (the makers' announcements of availability)."""
YOUNG_MONTHS = 18
LAYOUT_OPTIMIZATION: Date = (2023, 10)
"""torch 2.1: Inductor's `layout_optimization`, on by default, runs convolutions channels-last."""
COALESCED_ZERO_3: Date = (2022, 1)
"""DeepSpeed gathered parameter by parameter before, over one rail at a time, whatever the model and
the fabric (Narayanan et al. 2021, table 2: the same step on 768 and on 1,536 accelerators)."""
FULL_HEAD = 128
"""Head width of most language models. FlashAttention-2 lags behind the measured kernels of Hopper
by 1.35, 1.5 and 1.75 at 64, 128 and 256, of Blackwell by 1.8 and 2.65 at 64 and 128 (medians of
published forward kernels from 2k tokens on): about as the root of the width."""
_TENSOR_KINDS = ("gemm", "attention", "convolution", "rnn")


def scripts_gelu(stack: Stack, date: Date | None) -> bool:
    """Return whether transformers' GELU was a TorchScript function."""
    return stack == "torch-eager" and date is not None and date < NATIVE_GELU


def is_python_bound(stack: Stack, date: Date | None, features: frozenset[str]) -> bool:
    """Return whether Python launches Megatron's kernels one by one.

    It did before Transformer Engine's layers, whose C++ modules launch several kernels a call.
    """
    return stack == "megatron" and not is_lean(date, features)


def narrow_products(features: frozenset[str]) -> float:
    """Return the time of linear layers' products over that in the precision's own format."""
    return min((_NARROW_PRODUCTS.get(name, 1.0) for name in features), default=1.0)


def is_lean(date: Date | None, features: frozenset[str]) -> bool:
    """Return whether Megatron of that date runs Transformer Engine's layers."""
    return date is None or date >= LEAN_MEGATRON or TRANSFORMER_ENGINE in features


def picks_layouts(stack: Stack, date: Date | None) -> bool:
    """Return whether a compiler chooses the memory order of convolutions, whatever the file's."""
    if stack == "xla":
        return True
    return stack == "torch-compile" and (date is None or date >= LAYOUT_OPTIMIZATION)


def launches_serially(stack: Stack, date: Date | None, layout: Layout) -> bool:
    """Return whether host time adds to the device's, as under DeepSpeed's engine of 2021-22.

    Megatron had no sharded optimizer of its own before `DISTRIBUTED_OPTIMIZER`: ZeRO beside it was
    DeepSpeed's. Published steps of its engine with tensor parallelism show host time that nothing
    hides, a fixed cost per layer and micro-batch; without tensor parallelism they do not.
    """
    of_deepspeed = stack == "megatron" and layout.zero_stage in (1, 2) and layout.tensor > 1
    return of_deepspeed and date is not None and date < DISTRIBUTED_OPTIMIZER


def optimizer_traffic(
    stack: Stack,
    date: Date | None,
    constants: Constants,
    *,
    autocast: bool,
    sixteen_bit: bool,
    features: frozenset[str] = frozenset(),
) -> float:
    """Return the bytes an optimizer step moves relative to torch's foreach implementation.

    One fused kernel reads gradient, parameter and moments and writes the last three: a third of
    what foreach moves, whose every term is a pass of its own. The loops over tensors before it also
    wrote temporaries, and clipped gradients in passes of their own.
    """
    fused = FUSED_OPTIMIZER in features or stack in ("megatron", "xla")
    fused = fused or (sixteen_bit and not autocast and date is not None and date < NATIVE_AUTOCAST)
    if fused:
        return constants["optimizer_traffic.fused"]
    return (
        constants["optimizer_traffic.looped"]
        if date is not None and date < FOREACH_OPTIMIZERS
        else 1.0
    )


def in_step(
    device: Accelerator,
    kind: KernelKind,
    constants: Constants,
    *,
    precision: Precision,
    stack: Stack,
    date: Date | None = None,
) -> float:
    """Return the time of a kernel in a training step relative to its micro-benchmark.

    Args:
        device: its architecture decides.
        kind: of the kernel.
        constants: that time, by kind and architecture.
        precision: of the run: fp32 runs without tensor cores.
        stack: how runs of memory-bound kernels are fused.
        date: of the software; None means today.
    """
    family = _step_family(device, constants)
    tuned = f"{family}.{stack}"
    if f"real_step.{tuned}" in constants:
        family = tuned
    if kind not in _TENSOR_KINDS:
        memory = _of_family("memory_step", _memory_family(device, family), constants)
        if date is not None and date < NATIVE_AUTOCAST:
            memory *= constants["memory_step_of_old"]
        if stack == "torch-eager":
            return memory
        return memory * _of_family("fused_memory_step", stack, constants)
    if precision == "fp32" and device.vendor == "NVIDIA":
        return _of_family("fp32_step", family, constants)
    slowdown = constants.get(f"real_step.{family}", 1.0)
    if kind in ("convolution", "rnn"):
        slowdown *= _of_family("convolution_step", _memory_family(device, family), constants)
    if precision == "fp32":
        slowdown *= constants.get(f"fp32_step.{family}", 1.0)
    if precision == "tf32" and device.vendor == "NVIDIA":
        slowdown *= _of_family("tf32_step", family, constants)
    if _is_young(device.arch, date):
        slowdown *= constants["young_kernels"]
    if date is not None and date < CUDA_12:
        slowdown *= constants["kernels_of_cuda_11"]
    return slowdown


def _is_young(architecture: str, date: Date | None) -> bool:
    """Return whether libraries had not yet been tuned for an architecture at that date."""
    released = FIRST_SOLD.get(architecture)
    if released is None or date is None:
        return False
    months = 12 * (date[0] - released[0]) + date[1] - released[1]
    return months < YOUNG_MONTHS


def _step_family(device: Accelerator, constants: Constants) -> str:
    """Return the architectures that share the constants of a step."""
    if device.vendor == "Google":
        return "TPU"
    family = {"CDNA4": "CDNA3", "Blackwell Ultra": "Blackwell"}.get(device.arch, device.arch)
    unknown = device.vendor == "NVIDIA" and f"real_step.{family}" not in constants
    family = "Ampere" if unknown else family
    of_cards = f"{family}-GDDR"
    return of_cards if _is_gddr(device) and f"real_step.{of_cards}" in constants else family


def _memory_family(device: Accelerator, family: str) -> str:
    """Return the devices whose memory-bound kernels and convolutions share constants."""
    return "GDDR" if device.vendor == "NVIDIA" and _is_gddr(device) else family


def _is_gddr(device: Accelerator) -> bool:
    return "GDDR" in (device.memory_type or "")


def _of_family(name: str, family: str, constants: Constants) -> float:
    own = f"{name}.{family}"
    return constants[own if own in constants else name]


def tensor_exposure(
    stack: Stack, date: Date | None, features: frozenset[str], constants: Constants
) -> float:
    """Return the share of tensor-parallel collectives that lengthens the step.

    They stand between dependent kernels; only where products are cut up to run beside them (torch's
    async tensor parallelism, the user buffers of Megatron's recipes) is part of them hidden.
    """
    modern = stack == "megatron" and is_lean(date, features)
    overlapped = modern or "async-tensor-parallel" in features or stack == "xla"
    return constants["tensor_exposure.overlapped" if overlapped else "tensor_exposure"]


def routing_passes(
    stack: Stack, date: Date | None, features: frozenset[str], constants: Constants
) -> float:
    """Return how often the rows of experts' grouped products are moved beside the products.

    Tokens are sorted by expert, padded, cast, weighted and put back, and groups are uneven.
    """
    newest = stack == "megatron" and (date is None or date >= LEAN_EXPERTS)
    newest = newest or FUSED_DISPATCH in features or stack == "xla"
    return constants["routing_passes.lean" if newest else "routing_passes"]


def attention_architecture(device: Accelerator) -> str:
    """Return the devices whose attention kernels are the same: cards lack the data centre's."""
    return f"{device.arch}-GDDR" if _is_gddr(device) and device.arch == "Blackwell" else device.arch


def attention_slowdown(
    architecture: str,
    stack: Stack,
    date: Date | None,
    constants: Constants,
    *,
    head_dim: Array | float = FULL_HEAD,
    own_package: bool = False,
) -> Array | float:
    """Return the time of fused attention kernels relative to the measured kernels of today.

    Args:
        architecture: of the device (`attention_architecture`).
        stack: torch's own scaled_dot_product_attention stayed with FlashAttention-2 to
            `CUDNN_FIRST`; Megatron follows the newest kernels.
        date: of the software; None means today.
        constants: that time, by generation of the kernels.
        head_dim: of each kernel: the narrower its heads, the less the tensor cores of newer devices
            help, for exponentials are then as much of the work.
        own_package: whether the flash-attn package is called instead of torch's function; it
            follows the newest kernels as well.
    """
    today = constants["attention_step"]
    if date is not None and date < FLASH_2[stack]:
        return today * constants.get(f"flash_1.{architecture}", 1.0)
    family = _GENERATION.get(architecture, architecture)
    newest = (stack == "megatron" or own_package) and (date is None or date >= FLASH_3)
    if stack.startswith("torch") and architecture in _CUDNN_FIRST_ON:
        newest = newest or date is None or date >= CUDNN_FIRST
    if not newest:
        lag = constants.get(f"flash_2.{family}", 1.0) - 1
        return today * (1 + lag * np.sqrt(head_dim / FULL_HEAD))
    tuned = date is None or date >= TUNED_ATTENTION
    return constants.get(f"attention_tuned.{family}", today) if tuned else today
