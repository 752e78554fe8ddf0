"""What the software stack adds to the kernels: launch cost, fusion, era of its kernels.

Constants carry where they come from. "fitted" means chosen against the open run records of
tests/published, first by a least-squares prototype and then by looking at residuals: the errors in
docs/accuracy.md are in sample. None of them is a function of the source of a record.
"""

from __future__ import annotations

from dataclasses import dataclass

from .era import Date
from .layout import Layout
from .plan import Stack


@dataclass(frozen=True, kw_only=True)
class StackFacts:
    """How one software stack launches and fuses."""

    name: Stack
    forward_launch_s: float
    """Host time per operation of the forward pass, autograd's bookkeeping included."""
    backward_launch_s: float
    """Host time per operation of the backward pass (the autograd engine, in C++)."""
    optimizer_launch_s: float
    fuses: bool
    """Whether runs of memory-bound kernels become one kernel."""
    step_overhead_s: float
    """Host work once a step: zero_grad, data handling, the loop itself."""
    autocast: bool = True
    """Whether 16-bit compute is torch.autocast's, with casts around every layer; False where the
    layers are 16-bit themselves."""
    date: Date | None = None
    """Of the software; None is today."""
    launches_serially: bool = False
    """Whether the device waits for each launch: host time is added, not hidden."""
    optimizer_traffic: float = 1.0
    """Bytes that the optimizer step moves, relative to torch's foreach implementation."""


LAUNCHED_FROM_PYTHON = {"forward_launch_s": 75e-6, "backward_launch_s": 54e-6}
"""Megatron to 2024: about 0.83 ms of host time per layer forward and 1.43 x that backward, spread
over the kernels that are left when its own fusions are taken (fitted on launch-bound runs)."""


def casts_layers(stack: Stack, layout: Layout) -> bool:
    """Return whether mixed precision is torch.autocast's, with casts around fp32 layers.

    FSDP's MixedPrecisionPolicy, Megatron and XLA run layers that are 16-bit themselves.
    """
    sharded = layout.zero_stage == 3 and layout.shard > 1
    return stack not in ("megatron", "xla") and not sharded


STACK_FACTS: dict[Stack, StackFacts] = {
    # A Megatron layer of 2020-23 costs 0.83 ms of host forward for 60-70 launches, 1.43 x that
    # backward (fitted on the launch-bound rows of vTrain); torch eager launches the same way.
    "torch-eager": StackFacts(
        name="torch-eager",
        forward_launch_s=12e-6,
        backward_launch_s=9e-6,
        optimizer_launch_s=10e-6,
        fuses=False,
        step_overhead_s=2e-3,
    ),
    # Inductor's wrapper launches one Triton kernel in 3-4 us and far fewer of them.
    "torch-compile": StackFacts(
        name="torch-compile",
        forward_launch_s=4e-6,
        backward_launch_s=4e-6,
        optimizer_launch_s=4e-6,
        fuses=True,
        step_overhead_s=2e-3,
    ),
    "megatron": StackFacts(
        name="megatron",
        forward_launch_s=4e-6,
        backward_launch_s=4e-6,
        optimizer_launch_s=10e-6,
        fuses=True,
        step_overhead_s=2e-3,
    ),
    "xla": StackFacts(
        name="xla",
        forward_launch_s=0.5e-6,
        backward_launch_s=0.5e-6,
        optimizer_launch_s=0.5e-6,
        fuses=True,
        step_overhead_s=1e-3,
    ),
}
