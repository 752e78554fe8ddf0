"""What software of an earlier date did differently from the kernels and stacks measured today.

The keys are the stack, the date of the software and the architecture of the device. A user's plan
is for today's software; dates matter when past runs are predicted (`gpuplan validate`).
"""

from __future__ import annotations

from .plan import Stack

Date = tuple[int, int]
"""Year and month of a software release."""

FLASH_2: Date = (2023, 7)
"""FlashAttention-2 (arXiv:2307.08691); FlashAttention-1 and its Triton port before."""
FLASH_3: Date = (2024, 7)
"""FlashAttention-3 (arXiv:2407.08608) and cuDNN's fused attention of that year, for Hopper."""
NATIVE_AUTOCAST: Date = (2022, 1)
"""Mixed precision was Apex O2 (16-bit layers) before torch 1.6 brought torch.autocast (2020-07),
and stayed so in most training scripts until Apex gave its amp up."""

_FLASH_1_SLOWDOWN = {"Ampere": 1.45, "Hopper": 2.4}
"""FlashAttention-1 and Triton: 25-40 % of the A100's peak where FlashAttention-2 reaches 50-73 %
(arXiv:2307.08691, figures 4-6); on Hopper times its own lag behind FlashAttention-3."""
_FLASH_2_SLOWDOWN = {"Hopper": 1.9}
"""FlashAttention-2 uses 35 % of the H100; FlashAttention-3 is 1.5-2.0 x faster forward and
1.5-1.75 x backward, more with long causal sequences (arXiv:2407.08608, figures 5-6)."""

_REAL_STEP = {"Ampere": 1.07, "Hopper": 1.10}
"""Tensor-core kernels of a training step against the same ones measured alone and hot: clocks give
way to power, caches are shared with everything else. Fitted on compute-bound published steps."""
_REAL_STEP_TYPICAL = 1.07


def real_step_slowdown(architecture: str, vendor: str) -> float:
    """Return the time of a tensor-core kernel in a step relative to its micro-benchmark.

    Levels of devices of other makers come from whole steps already.
    """
    return _REAL_STEP.get(architecture, _REAL_STEP_TYPICAL) if vendor == "NVIDIA" else 1.0


def attention_slowdown(architecture: str, stack: Stack, date: Date | None) -> float:
    """Return the time of a fused attention kernel relative to the measured kernels of today.

    Args:
        architecture: of the device, as the catalogue names it.
        stack: torch's own scaled_dot_product_attention stays with FlashAttention-2; Megatron
            follows the newest kernels.
        date: of the software; None means today.
    """
    if date is not None and date < FLASH_2:
        return _FLASH_1_SLOWDOWN.get(architecture, 1.0)
    newest = stack == "megatron" and (date is None or date >= FLASH_3)
    return 1.0 if newest else _FLASH_2_SLOWDOWN.get(architecture, 1.0)
