"""How long kernels take in a training step relative to their micro-benchmarks.

The keys are the architecture of the device, the stack and the date of its software: attention has
had a generation of kernels every other year.
"""

from __future__ import annotations

import numpy as np

from ...catalog.types import Accelerator
from ...catalog.vocabulary import Precision, Stack
from ...profiles.profile import KernelKind
from ..constants import Constants
from ..plan.setup import Date
from .versions import VECTORISED_KERNELS

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
FLASH_3: Date = (2024, 7)
"""FlashAttention-3 (arXiv:2407.08608) and cuDNN's fused attention of that year, for Hopper."""
CUDNN_FIRST: Date = (2026, 7)
"""torch 2.13: scaled_dot_product_attention takes cuDNN's kernels first where the compute capability
is 9.0 or 10.0 (`check_prefer_cudnn_attention` in its sdp_utils.cpp; its wheels bring cuDNN 9.15 and
later). Not on 10.3 (B300, GB300), nor on cards (12.0)."""
OLDER_ATTENTION = (
    "scaled_dot_product_attention is taken to run FlashAttention-2: torch 2.13 asks cuDNN first on"
    " compute capability 9.0 and 10.0 alone (sdp_utils.cpp); a model that calls it under"
    " torch.nn.attention.sdpa_kernel(SDPBackend.CUDNN_ATTENTION) may be faster than predicted"
)
_CUDNN_HEADS = {"Hopper": 256, "Blackwell": 128}
_CUDNN_FIRST_ON = tuple(_CUDNN_HEADS)
TUNED_ATTENTION: Date = (2025, 1)
"""cuDNN 9.5 and later, FlashAttention-3's and 4's tuned backward."""
RETUNED_ATTENTION: Date = (2026, 1)
"""cuDNN 9.18.1 (its front end 1.18.0 of 2026-01-27 measures "the sdpa improvements" in it): on an
H200 9.19 takes 0.93 forward and 0.82 backward of what 9.1 does (causal, 128 wide, 4k to 32k)."""
_BEFORE_FLASH = ("Maxwell", "Pascal", "Volta", "Turing")
"""Compute capabilities below 8.0: torch has no flash kernel for them, with a mask or without."""
_GENERATION = {"Blackwell Ultra": "Blackwell"}
_SHARED_STEP = {**_GENERATION, "CDNA4": "CDNA3", "Gaudi3": "Gaudi2"}
"""Architectures whose kernels are in a step as those of another."""
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
FULL_HEAD = 128
"""Head width of most language models. FlashAttention-2 lags behind the measured kernels of Hopper
by 1.35, 1.5 and 1.75 at 64, 128 and 256, of Blackwell by 1.8 and 2.65 at 64 and 128 (medians of
published forward kernels from 2k tokens on): about as the root of the width."""
NARROW_TOKENS = 1024
"""Half of FlashAttention-2's lag is there with heads 64 wide and as many tokens. From 512 to 8,192
its forward and backward take .70, .74, .81, .90 and .97 of what they would with the lag of 16k
tokens, with heads 128 wide .93 to .98 (FA 2.0 and 2.5.8 on H100, against the curves); by this .79
to .98, which is as much as whole steps bear out."""
LARGE_CACHE_BYTES = 32 * 2**20
"""L2 of cards since Ada is 32 MB (RTX 4060) and more, of those before 6 MB and less."""
_TENSOR_KINDS = ("gemm", "attention", "convolution", "rnn")


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
        memory = _of_family("memory_step", _stream_family(device, family), constants)
        memory = constants.get(f"memory_step.{family}.{stack}", memory)
        if date is not None and date < VECTORISED_KERNELS:
            memory *= constants["memory_step_of_old"]
        if stack == "torch-eager":
            return memory
        of_gpu = stack == "xla" and device.vendor != "Google"
        return memory * _of_family("fused_memory_step", "xla.GPU" if of_gpu else stack, constants)
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
    family = _SHARED_STEP.get(device.arch, device.arch)
    unknown = device.vendor == "NVIDIA" and f"real_step.{family}" not in constants
    family = "Ampere" if unknown else family
    of_cards = f"{family}-GDDR"
    return of_cards if _is_gddr(device) and f"real_step.{of_cards}" in constants else family


def _memory_family(device: Accelerator, family: str) -> str:
    """Return the devices whose convolutions share constants."""
    return "GDDR" if device.vendor == "NVIDIA" and _is_gddr(device) else family


def _stream_family(device: Accelerator, family: str) -> str:
    """Return the devices whose memory-bound kernels share constants."""
    cards = _memory_family(device, family)
    return f"{cards}.cached" if has_fast_cache(device) else cards


def has_fast_cache(device: Accelerator) -> bool:
    """Return whether a device's cache is large, and several times as fast as its memory.

    That of an A100 or H100 is large, but their memory is nearly as fast: what runs at a smaller
    batch is not faster there than its bytes say (BERT, Lambda's and milabench's).
    """
    is_card = device.vendor == "NVIDIA" and _is_gddr(device)
    return is_card and (device.l2_bytes or 0) >= LARGE_CACHE_BYTES


def _is_gddr(device: Accelerator) -> bool:
    return "GDDR" in (device.memory_type or "")


def _of_family(name: str, family: str, constants: Constants) -> float:
    own = f"{name}.{family}"
    return constants[own if own in constants else name]


def attention_architecture(device: Accelerator) -> str:
    """Return the devices whose attention kernels are the same: cards lack the data centre's."""
    if device.vendor == "Google":
        return "TPU"
    return f"{device.arch}-GDDR" if _is_gddr(device) and device.arch == "Blackwell" else device.arch


def attention_of_torch(device: Accelerator, stack: Stack) -> str | None:
    """Return what makes today's torch slower at attention than a device's kernels are, and a way.

    None where it calls the newest kernels that there are (`CUDNN_FIRST`).
    """
    newer = _GENERATION.get(attention_architecture(device))
    lags = stack.startswith("torch") and newer in _CUDNN_FIRST_ON
    return OLDER_ATTENTION if lags else None


def attention_slowdown(
    architecture: str,
    stack: Stack,
    date: Date | None,
    constants: Constants,
    *,
    head_dim: Array | float = FULL_HEAD,
    tokens: Array | float = np.inf,
    own_package: bool = False,
) -> Array | float:
    """Return the time of fused attention kernels relative to the measured kernels of today.

    Args:
        architecture: of the device (`attention_architecture`).
        stack: torch's own scaled_dot_product_attention stayed with FlashAttention-2 to
            `CUDNN_FIRST`; Megatron follows the newest kernels; XLA on GPUs calls cuDNN's alone.
        date: of the software; None means today.
        constants: that time, by generation of the kernels.
        head_dim: of each kernel: the narrower its heads, the less the tensor cores of newer devices
            help, for exponentials are then as much of the work.
        tokens: of each kernel's sequences: with narrow heads and few tokens they do not help at all
            (`NARROW_TOKENS`).
        own_package: whether the flash-attn package is called instead of torch's function; it
            follows the newest kernels as well.
    """
    today = _of_family("attention_step", architecture, constants)
    if date is not None and date < FLASH_2[stack]:
        return today * constants.get(f"flash_1.{architecture}", 1.0)
    family = _GENERATION.get(architecture, architecture)
    newest = (stack == "megatron" or own_package) and (date is None or date >= FLASH_3)
    newest = newest or stack == "xla"
    if stack.startswith("torch") and architecture in _CUDNN_FIRST_ON:
        newest = newest or date is None or date >= CUDNN_FIRST
    if not newest:
        lag = constants.get(f"flash_2.{family}", 1.0) - 1
        few = NARROW_TOKENS * np.maximum(FULL_HEAD / np.asarray(head_dim) - 1, 0) / tokens
        return today * (1 + lag * np.sqrt(head_dim / FULL_HEAD) / (1 + few))
    if date is not None and date < TUNED_ATTENTION:
        return today
    tuned = constants.get(f"attention_tuned.{family}", today)
    if date is not None and date < RETUNED_ATTENTION:
        return tuned
    return constants.get(f"attention_retuned.{family}", tuned)


def efficient_slowdown(
    device: Accelerator,
    stack: Stack,
    date: Date | None,
    constants: Constants,
    *,
    head_dim: Array | float = FULL_HEAD,
    tokens: Array | float = np.inf,
    served: Array | bool = False,
) -> Array | float:
    """Return the time of attention without a flash kernel relative to the measured kernels.

    torch's memory-efficient kernel, or cuDNN's where that serves it (`serves_masks`).

    Args:
        device: NVIDIA's; others run the same kernels with and without a mask.
        stack: torch's.
        date: of the software; None means today.
        constants: that time.
        head_dim: of each kernel.
        tokens: of each kernel's sequences.
        served: whether cuDNN runs it.
    """
    architecture = attention_architecture(device)

    def of_flash(date: Date | None) -> Array | float:
        return attention_slowdown(
            architecture, stack, date, constants, head_dim=head_dim, tokens=tokens
        )

    today = of_flash(date)
    if device.vendor != "NVIDIA" or architecture in _BEFORE_FLASH:
        return today
    second = of_flash(FLASH_2[stack])
    return np.where(
        served,
        today * constants["masked_attention.cudnn"],
        second * constants["efficient_attention"],
    )


def serves_masks(device: Accelerator, date: Date | None, head_dim: Array | float) -> Array | bool:
    """Return whether torch asks cuDNN first, which takes masks of any kind, for heads so wide.

    Its kernels take heads up to 256 wide on compute capability 9.0 and 128 on 10.0
    (`check_cudnn_tensor_shapes` in torch's sdp_utils.cpp; pytorch/pytorch#130482).
    """
    longest = _CUDNN_HEADS.get(attention_architecture(device), 0)
    is_first = date is None or date >= CUDNN_FIRST
    return np.asarray(head_dim) <= (longest if is_first else 0)
