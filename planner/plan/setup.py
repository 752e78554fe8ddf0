"""The setup of a training step: layout, precision, batch, software and what is switched on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ...catalog.vocabulary import FrozenPrecision, Offloaded, Precision, Recompute, Stack
from .layout import Layout

Date = tuple[int, int]
"""Year and month of a software release."""
ReduceDtype = Literal["fp32", "bf16"]
"""What FSDP reduces the gradients of 16-bit layers in."""
REDUCE_DTYPES: tuple[ReduceDtype, ...] = get_args(ReduceDtype)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How the step is run."""

    layout: Layout
    precision: Precision
    micro_batch: int
    grad_accum: int = 1
    pipeline_passes: int = 1
    """How often a step fills and drains its pipeline."""
    recompute: Recompute = "none"
    recompute_share: float = 1.0
    """Part of the layers that are recomputed, the first ones of every stage; the others keep their
    activations."""
    stack: Stack = "torch-eager"
    compile: bool = False
    by_block: bool = False
    """Whether it stands for layouts whose blocks are compiled one by one, whatever its own is."""
    optimizer: str | None = None
    """Optimizer of the step. None is the file's own, "none" is forward and backward only, any other
    name is a what-if."""
    autocast: bool = True
    """Whether 16-bit compute comes from torch.autocast; False where the layers are 16-bit
    themselves: FSDP's MixedPrecision, Megatron, XLA, Apex O2."""
    software_date: Date | None = None
    """Year and month of the software; None is today."""
    features: frozenset[str] = frozenset()
    """What else was switched on, as run records name it."""
    frozen_precision: FrozenPrecision | None = None
    """How frozen parameters are kept; None as the precision keeps those that are trained."""
    offload: frozenset[Offloaded] = frozenset()
    """What is kept in host memory."""
