"""What the software stack adds to the kernels: launch cost, fusion, the version of its kernels.

The constants, with their sources, are in `data/constants.toml`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ...catalog.vocabulary import Offloaded, Recompute, Stack
from ...profiles.curves.odd_widths import OddWidths
from ..constants import Constants
from ..plan.layout import Layout
from ..plan.setup import Date
from .dispatch import ExpertHost
from .versions import GATHERED_ONCE, OptimizerLoop


@dataclass(frozen=True, kw_only=True)
class StackFacts:
    """How one software stack launches and fuses."""

    name: Stack
    constants: Constants
    """Where launch costs are from, and what its kernels take in a step (`versions.py`)."""
    forward_launch_s: float
    """Host time per operation of the forward pass, autograd's bookkeeping included."""
    backward_launch_s: float
    """Host time per operation of the backward pass (the autograd engine, in C++)."""
    optimizer_launch_s: float
    fuses: bool
    """Whether runs of memory-bound kernels become one kernel."""
    fuses_loss: bool = field(default=False, kw_only=True)
    """Whether a compiler makes one kernel a pass of the loss, whoever computes it."""
    compiles_whole: bool = field(default=False, kw_only=True)
    """Whether a compiler sees all that the model computes: a loss of the model's own too."""
    step_overhead_s: float
    """Host work once a step: zero_grad, data handling, the loop itself."""
    autocast: bool = True
    """Whether 16-bit compute is torch.autocast's, with casts around every layer; False where the
    layers are 16-bit themselves."""
    date: Date | None = None
    """Date of the software; None is today."""
    attention_date: Date | None = None
    """Date of its attention kernels; None is today."""
    flash_package: bool = False
    """Whether attention is the flash-attn package's, not torch's own."""
    torch_attention: bool = True
    """Whether attention is torch's own function, which has other kernels where it takes a mask."""
    launches_serially: bool = False
    """Whether the device waits for each launch: host time is added, not hidden."""
    narrow_products: float = 1.0
    """Time of linear layers' products in a format narrower than the precision's, over that of its
    own."""
    routing_passes: float = 0.0
    """How often the rows of experts' products are moved beside the products themselves."""
    unfused_experts: bool = False
    """Whether a recipe leaves products, casts and permutation of experts apart."""
    optimizer_loop: OptimizerLoop = OptimizerLoop()
    """What the host takes for each tensor that is stepped by itself."""
    expert_host: ExpertHost = ExpertHost()
    """What the host takes for layers with experts."""
    recompute_host_s: Mapping[Recompute, float] = field(default_factory=dict)
    """Host time that torch.utils.checkpoint takes in each of the two passes of a block, beside the
    launches: hooks for what is saved, states of random generators; where some results are kept, a
    mode in Python that every operation of the block passes twice."""
    optimizer_traffic: float = 1.0
    """Bytes that the optimizer step moves, relative to torch's foreach implementation."""
    odd_widths: OddWidths = "kept"
    """What is done with products of an odd width."""
    fp8_attention: bool = False
    """Whether attention multiplies in 8 bits beside layers that do."""
    reductions_apart: bool = False
    """Whether a compiler makes each reduction of a softmax or norm a kernel of its own."""


def runs_torch_pipelines(stack: Stack) -> bool:
    """Return whether pipeline stages run under torch.distributed.pipelining.

    Beside them FSDP gathers and reduces once a step (`planner/memory/stages/whole.py`).
    """
    return stack.startswith("torch")


def adds_up_shards(stack: Stack, layout: Layout) -> bool:
    """Return whether a rank adds gradients of micro-batches up in the shards that it keeps.

    FSDP scatters those of every micro-batch, and ZeRO-2 is FSDP under torch. Beside stages it does
    so once a step, and what it adds up is whole.
    """
    staged = layout.pipeline > 1 and runs_torch_pipelines(stack)
    return layout.zero_stage >= (2 if stack.startswith("torch") else 3) and not staged


def gathers_once(stack: Stack, date: Date | None, features: Collection[str] = ()) -> bool:
    """Return whether ZeRO-2 gathers once a step, as FSDP under gpuplan's runner does.

    What ran elsewhere gathers anew in every micro-batch, as FSDP does unless it is told not to.
    """
    return stack.startswith("torch") and (date is None or GATHERED_ONCE in features)


def casts_layers(stack: Stack, layout: Layout, offload: Collection[Offloaded] = ()) -> bool:
    """Return whether mixed precision is torch.autocast's, with casts around fp32 layers.

    FSDP's MixedPrecisionPolicy (ZeRO-2 is FSDP that does not reshard), Megatron and XLA run layers
    that are 16-bit themselves, and so do engines that keep the fp32 weights on the host.
    """
    sharded = layout.zero_stage in (2, 3) and layout.shard > 1
    on_host = "optimizer" in offload or "parameters" in offload
    return stack not in ("megatron", "xla") and not sharded and not on_host


PADDED_WIDTHS = "padded-widths"
"""Feature of a setup: the model itself is wider, so that none of its widths is odd."""


def odd_widths(stack: Stack) -> OddWidths:
    """Return what a stack does with products of an odd width.

    Eager torch multiplies them as they are. Inductor copies operands to wider rows
    (torch/_inductor/fx_passes/pad_mm.py). Megatron pads the vocabulary to a multiple of 128
    (`--make-vocab-size-divisible-by`), XLA all operands (cublas_pad_for_gemms.cc of its GPU
    service; on TPU to tiles of 128).
    """
    return "kept" if stack == "torch-eager" else "padded"


def facts_of(stack: Stack, constants: Constants, *, python_bound: bool = False) -> StackFacts:
    """Return what a stack adds to the kernels.

    Args:
        stack: which.
        constants: launch costs, among others.
        python_bound: whether Megatron's kernels are launched one by one from Python.
    """
    launch_s = constants[f"launch_s.{'megatron-python' if python_bound else stack}"]
    return StackFacts(
        name=stack,
        constants=constants,
        forward_launch_s=launch_s,
        backward_launch_s=launch_s * constants["backward_launch"],
        optimizer_launch_s=_OPTIMIZER_LAUNCH
        * constants[_OPTIMIZER_HOST.get(stack, f"launch_s.{stack}")],
        recompute_host_s=_recompute_host_s(constants) if stack == "torch-eager" else {},
        fuses=stack != "torch-eager",
        odd_widths=odd_widths(stack),
        torch_attention=stack.startswith("torch"),
        step_overhead_s=constants["step_overhead_s"] * (0.5 if stack == "xla" else 1.0),
    )


def _recompute_host_s(constants: Constants) -> dict[Recompute, float]:
    """Return it for one of two passes; a compiler takes the reruns into its graph instead."""
    kinds: tuple[Recompute, ...] = ("full", "selective")
    return {kind: constants[f"recompute_host_s.{kind}"] / 2 for kind in kinds}


_OPTIMIZER_HOST = {"megatron": "launch_s.torch-eager"}
"""Apex's and Megatron's optimizers are stepped from Python whatever launches the layers."""
_OPTIMIZER_LAUNCH = 0.8
"""Host time of a launch of the optimizer, in Python but without autograd, over one of forward."""
