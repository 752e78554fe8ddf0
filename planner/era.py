"""What software of an earlier date did differently from the kernels and stacks measured today.

The keys are the stack, the date of the software and the architecture of the device. A user's plan
is for today's software; dates matter when past runs are predicted (`gpuplan validate`).
"""

from __future__ import annotations

from ..catalog.types import Accelerator
from ..profiles.profile import KernelKind
from .layout import Layout
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

FOREACH_OPTIMIZERS: Date = (2023, 3)
"""torch 2.0 made its optimizers step all tensors of a list at once."""
LEAN_MEGATRON: Date = (2025, 1)
"""Megatron with Transformer Engine and CUDA graphs, as recipes use it since."""
DISTRIBUTED_OPTIMIZER: Date = (2022, 9)
"""Megatron-LM's --use-distributed-optimizer, in the 2022-09 releases."""
COALESCED_ZERO_3: Date = (2022, 1)
"""DeepSpeed gathered parameter by parameter before, over one rail at a time."""
UNCOALESCED_BYTES_PER_S = 19e9
"""Ring rate of those gathers, whatever the model and the fabric (Narayanan et al. 2021, table 2:
the same step time on 768 and on 1,536 accelerators)."""
FUSED_OPTIMIZER = 0.4
"""28 bytes of state and 6 of 16-bit copies to the 84 of foreach Adam (as traced)."""
LOOPED_OPTIMIZER = 1.7
"""About 140 bytes: torch.optim of 2020 with temporaries, and clipping (counted by hand)."""

_FLASH_1_SLOWDOWN = {"Ampere": 1.45, "Hopper": 2.4}
"""FlashAttention-1 and Triton: 25-40 % of the A100's peak where FlashAttention-2 reaches 50-73 %
(arXiv:2307.08691, figures 4-6); on Hopper times its own lag behind FlashAttention-3."""
_FLASH_2_SLOWDOWN = {"Hopper": 2.1}
"""FlashAttention-2 uses 35 % of the H100; FlashAttention-3 is 1.5-2.0 x faster forward and
1.5-1.75 x backward, more with long causal sequences (arXiv:2407.08608, figures 5-6). The upper end
fits published long-sequence steps on H100."""

_REAL_STEP = {"Ampere": 1.07, "Hopper": 1.10}
"""Tensor-core kernels of a training step against the same ones measured alone and hot: clocks give
way to power, caches are shared with everything else. Fitted on compute-bound published steps."""
_CDNA3_STEP: dict[str, float] = {"gemm": 2.1, "attention": 2.1, "convolution": 3.3, "rnn": 3.3}
_CDNA3_FP32_STEP = 1.65
_CDNA3_MEMORY_STEP = 2.0
"""torch on ROCm against the levels of its micro-benchmarks: every published step of a CDNA3 device
is 1.7 to 2.5 times slower than those give, most where MIOpen convolves (one device, MI325X)."""
_REAL_STEP_TYPICAL = 1.07


_TENSOR_EXPOSED = 0.97
_TENSOR_EXPOSED_OVERLAPPED = 0.40
"""Fitted on published tensor-parallel steps without and with such overlap."""


def is_python_bound(stack: Stack, date: Date | None) -> bool:
    """Return whether Python launches Megatron's kernels one by one, as it did to 2024."""
    return stack == "megatron" and date is not None and date < LEAN_MEGATRON


def launches_serially(stack: Stack, date: Date | None, layout: Layout) -> bool:
    """Return whether host time adds to the device's, as under DeepSpeed's engine of 2021-22.

    Megatron had no sharded optimizer of its own before `DISTRIBUTED_OPTIMIZER`: ZeRO beside it was
    DeepSpeed's, whose engine synchronised throughout (fitted on published steps with it).
    """
    of_deepspeed = stack == "megatron" and layout.zero_stage in (1, 2)
    return of_deepspeed and date is not None and date < DISTRIBUTED_OPTIMIZER


def optimizer_traffic(
    stack: Stack, date: Date | None, *, autocast: bool, sixteen_bit: bool
) -> float:
    """Return the bytes an optimizer step moves relative to torch's foreach implementation.

    One fused kernel reads gradient, parameter and moments and writes the last three: a third of
    what foreach moves, whose every term is a pass of its own. The loops over tensors before it also
    wrote temporaries, and clipped gradients in passes of their own.
    """
    fused = stack in ("megatron", "xla") or (
        sixteen_bit and not autocast and date is not None and date < NATIVE_AUTOCAST
    )
    if fused:
        return FUSED_OPTIMIZER
    return LOOPED_OPTIMIZER if date is not None and date < FOREACH_OPTIMIZERS else 1.0


def real_step_slowdown(device: Accelerator, kind: KernelKind, *, fp32: bool) -> float:
    """Return the time of a kernel in a training step relative to its micro-benchmark.

    Levels of TPUs and other makers' devices come from whole steps already.
    """
    if device.arch in ("CDNA3", "CDNA4"):
        in_step = _CDNA3_STEP.get(kind, _CDNA3_MEMORY_STEP)
        return _CDNA3_FP32_STEP if fp32 and kind in _CDNA3_STEP else in_step
    is_tensor_kernel = kind in ("gemm", "attention", "convolution", "rnn") and not fp32
    if device.vendor != "NVIDIA" or not is_tensor_kernel:
        return 1.0
    return _REAL_STEP.get(device.arch, _REAL_STEP_TYPICAL)


def tensor_exposure(stack: Stack, date: Date | None, features: frozenset[str]) -> float:
    """Return the share of tensor-parallel collectives that lengthens the step.

    They stand between dependent kernels; only where products are cut up to run beside them (torch's
    async tensor parallelism, the user buffers of Megatron's recipes) is part of them hidden.
    """
    modern = stack == "megatron" and (date is None or date >= LEAN_MEGATRON)
    overlapped = modern or "async-tensor-parallel" in features or stack == "xla"
    return _TENSOR_EXPOSED_OVERLAPPED if overlapped else _TENSOR_EXPOSED


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
