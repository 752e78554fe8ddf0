"""What follows from a setup's software, precision and features alone."""

from __future__ import annotations

from dataclasses import replace

from ...catalog.vocabulary import Precision, Recompute, Stack
from ...profiles.passes.residence import Residence
from ...profiles.profile import NUMERICS_OF_PRECISION
from ..constants import Constants
from ..offload.host_copies import residence_of
from ..parallelism.degrees import Split
from ..plan.setup import Date, Setup
from ..software.collective_copies import collective_copies
from ..software.dispatch import SPLIT_BY_TENSOR, UNFUSED_EXPERTS, expert_host, routing_passes
from ..software.fp8_operands import gathered_bytes, kept_operands
from ..software.kept_memory import (
    BUILT_IN_FP32,
    FUSED_LOSS,
    KEPT_LOGITS,
    compiles_whole,
    fused_kernels,
    keeps_gradients,
    loss_of,
    megatron_blocks,
)
from ..software.stack import (
    PADDED_WIDTHS,
    StackFacts,
    facts_of,
    gathers_once,
    runs_torch_pipelines,
)
from ..software.state_bytes import keeps_fp32_gradients
from ..software.versions import (
    BF16_REDUCTION,
    BLOCKING,
    COALESCED_ZERO_3,
    DEEPSPEED,
    FLASH_PACKAGE,
    FP8_ATTENTION,
    FP8_PARAMETERS,
    FP8_ROWWISE,
    FUSED_ACCUMULATION,
    KEPT_PRODUCTS,
    LARGE_BUCKETS,
    REDUCTIONS_APART,
    SHARDED_BY_TENSOR,
    attention_date,
    calls_torch_attention,
    is_lean,
    is_megatron_deepspeed,
    is_python_bound,
    keeps_softmax_inputs,
    launches_serially,
    narrow_products,
    optimizer_loop,
    optimizer_traffic,
    scripts_gelu,
)
from ..step.slotted_calls import WireBytes

DEEPSPEED_BUCKET_BYTES = 10**9
"""DeepSpeed's `reduce_bucket_size` of 5e8 elements in 16 bits."""
MEGATRON_BUCKET_BYTES = 500 * 10**6
"""DeepSpeed's `reduce_bucket_size` (5e8 elements) and Megatron's (40 M parameters and more) differ;
at this size the network is at its peak rate with either."""

RECOMPUTE_PER_LAYER, RECOMPUTE_PER_OP = "recompute-per-layer", "recompute-per-op"
RECOMPUTE_MODES = frozenset({RECOMPUTE_PER_LAYER, RECOMPUTE_PER_OP})
"""Features, as run records name them: torchtitan's two modes of selective recompute."""
PER_OP_SHARE = 3 / 8
"""Share of a block's products that torchtitan's per-op mode computes again: every second call of
`aten.mm`, in the order of a Llama block those of wk, wo and w3 (parallelize_llama.py,
`_get_custom_policy`): 37 % of the FLOPs at 8B, 39 % at 13B. It keeps all results of attention,
which is taken to be redone for the same share."""


def setup_residence(
    setup: Setup, *, loss_in_model: bool = False, returns_logits: bool = False
) -> Residence:
    """Return what of the step is not on the device all the time.

    Args:
        setup: the run.
        loss_in_model: whether the model computes its cross-entropy itself.
        returns_logits: whether it returns the logits of that beside it.
    """
    away = residence_of(setup.offload, setup.features)
    date = setup.software_date
    own = loss_of(setup.stack, setup.features, date)
    if own == "whole" and loss_in_model and compiles_whole(setup):
        own = "one kernel beside zeros" if returns_logits else "one kernel"
    return replace(
        away,
        loss=away.loss if away.loss != "whole" else own,
        keeps_logits=KEPT_LOGITS in setup.features,
        keeps_gradients=keeps_gradients(setup),
        built_in_fp32=BUILT_IN_FP32 in setup.features,
        scripts_gelu=scripts_gelu(setup.stack, date),
        keeps_softmax_inputs=keeps_softmax_inputs(setup.stack, date),
        fuses=fused_kernels(setup.stack, date, compiled=setup.compile),
        operands=kept_operands(
            setup.stack,
            setup.precision,
            setup.layout,
            date,
            setup.features,
            compiled=setup.compile,
            recompute=setup.recompute,
        ),
        blocks=megatron_blocks(setup.stack, date, setup.features),
    )


def split_of(setup: Setup) -> Split:
    """Return how the layout of a setup divides a step."""
    gathered = gathered_bytes(setup.stack, setup.precision, setup.features)
    return Split.of(
        setup.layout,
        setup.stack,
        gathered,
        splits_experts=SPLIT_BY_TENSOR in setup.features,
        copies=collective_copies(
            setup.stack,
            setup.software_date,
            setup.features,
            compiled=setup.compile or setup.stack == "torch-compile",
        ),
    )


def stack_facts(setup: Setup, constants: Constants) -> StackFacts:
    """Return launch costs of the stack; compiling an eager file makes it a compiled one."""
    compiled = setup.compile and setup.stack == "torch-eager"
    date = setup.software_date
    facts = facts_of(
        "torch-compile" if compiled else setup.stack,
        constants,
        python_bound=is_python_bound(setup.stack, date, setup.features),
    )
    return replace(
        facts,
        autocast=setup.autocast,
        date=date,
        attention_date=attention_date(date, setup.features),
        flash_package=FLASH_PACKAGE in setup.features,
        torch_attention=calls_torch_attention(setup.stack, setup.features),
        narrow_products=narrow_products(setup.features),
        routing_passes=routing_passes(setup.stack, setup.features, constants),
        fuses_loss=FUSED_LOSS in setup.features,
        compiles_whole=compiles_whole(setup),
        optimizer_loop=optimizer_loop(date, setup.features, constants),
        expert_host=expert_host(setup.stack, setup.features, constants),
        unfused_experts=UNFUSED_EXPERTS in setup.features,
        reductions_apart=REDUCTIONS_APART in setup.features,
        fp8_attention=FP8_ATTENTION in setup.features,
        odd_widths="none" if PADDED_WIDTHS in setup.features else facts.odd_widths,
        launches_serially=launches_serially(setup.stack, date, setup.layout),
        optimizer_traffic=optimizer_traffic(
            setup.stack,
            date,
            constants,
            autocast=setup.autocast,
            sixteen_bit=NUMERICS_OF_PRECISION[setup.precision] == "amp16",
            features=setup.features,
        ),
    )


def recompute_policies(setup: Setup) -> dict[Recompute, float]:
    """Return what a recompute setting does, as shares of the policies that are traced.

    Ours keeps every matrix product under "selective". torchtitan's per-op mode computes some of
    them again, its per-layer mode every second layer; XLA's policies are taken to keep two
    thirds of the projections unless they are known to keep all. Layers beyond `recompute_share` are
    not recomputed. Where there are two, the one that keeps more is the first.
    """
    if setup.recompute_share < 1:
        return {"none": 1 - setup.recompute_share, setup.recompute: setup.recompute_share}
    if setup.recompute == "selective" and RECOMPUTE_PER_LAYER in setup.features:
        return {"none": 0.5, "full": 0.5}
    if setup.recompute == "selective" and RECOMPUTE_PER_OP in setup.features:
        return {"selective": 1 - PER_OP_SHARE, "full": PER_OP_SHARE}
    is_xla_s_own = setup.stack == "xla" and KEPT_PRODUCTS not in setup.features
    if setup.recompute == "selective" and is_xla_s_own:
        return {"selective": 2 / 3, "full": 1 / 3}
    return {setup.recompute: 1.0}


def wire_bytes(
    precision: Precision,
    stack: Stack = "torch-eager",
    date: Date | None = None,
    features: frozenset[str] = frozenset(),
) -> WireBytes:
    """Return bytes per parameter of each collective.

    FSDP gathers in the compute dtype and reduces in fp32 (MixedPrecisionPolicy(param_dtype=16-bit,
    reduce_dtype=fp32)), in bf16 where `features` say so; DDP reduces gradients in the parameters'
    dtype. Megatron and DeepSpeed send 16-bit parameters (8 bits where `features` say so), and
    gradients in the dtype that they are kept in. With one scale a tensor torchao's
    FSDP gathers in 8 bits (float8 all-gather); scales by row leave it at 16.
    """
    if stack == "megatron" and NUMERICS_OF_PRECISION[precision] != "fp32":
        # Before it had one of its own, ZeRO beside Megatron was DeepSpeed's pipeline engine, which
        # reduces after the last backward pass (`_exec_reduce_grads`), fp32 sums of bf16 gradients
        # whole (`_bf16_reduce_grads`). Megatron sends the dtype that gradients are kept in.
        of_deepspeed = is_megatron_deepspeed(stack, date, features)
        in_fp32 = keeps_fp32_gradients(precision, features)
        return WireBytes(
            gather=2,
            reduce=4 if in_fp32 else 2,
            refresh=1 if FP8_PARAMETERS in features else 2,
            reduces_apart=of_deepspeed,
            reduces_whole=of_deepspeed and in_fp32,
            coalesced=date is None or date >= COALESCED_ZERO_3,
            bucket_bytes=MEGATRON_BUCKET_BYTES,
            refresh_overlaps=is_lean(date, features),
            sharded_by_unit=False,
            sharded_by_tensor=SHARDED_BY_TENSOR in features,
        )
    once = runs_torch_pipelines(stack)
    own = gathers_once(stack, date, features)
    if NUMERICS_OF_PRECISION[precision] == "pure16":
        return WireBytes(gather=2, reduce=2, refresh=2, once_in_stages=once, keeps_gathered=own)
    if NUMERICS_OF_PRECISION[precision] == "fp32":
        return WireBytes(gather=4, reduce=4, refresh=4, once_in_stages=once, keeps_gathered=own)
    reduce = 2 if BF16_REDUCTION in features else 4
    gather = 1 if precision == "fp8" and FP8_ROWWISE not in features else 2
    wire = WireBytes(
        gather=gather,
        reduce=reduce,
        refresh=4,
        overlaps=BLOCKING not in features,
        once_in_stages=once,
        keeps_gathered=own,
    )
    if DEEPSPEED in features:
        return replace(
            wire,
            reduce=2,
            refresh=2,
            bucket_bytes=DEEPSPEED_BUCKET_BYTES,
            sharded_by_unit=False,
            reduces_apart=True,
            reduces_whole=True,
        )
    if LARGE_BUCKETS in features:
        return replace(wire, bucket_bytes=MEGATRON_BUCKET_BYTES, sharded_by_unit=False)
    return wire


def widened(width: float, double_share: float) -> float:
    """Return bytes per parameter where a part of them is in 8 bytes each, which nothing casts.

    Args:
        width: bytes of the others.
        double_share: `KeptSteps.double_share`.
    """
    return double_share * 8 + (1 - double_share) * width


def accumulation_bytes(setup: Setup) -> float:
    """Return bytes per parameter that adding a further micro-batch's gradient moves.

    A gradient and its sum are read, the sum is written: 12 bytes in fp32, 6 in 16 bits, in which
    DeepSpeed's ZeRO adds up (runtime/engine.py, `get_data_types`). Megatron
    keeps the sum of bf16 gradients in fp32 (accumulate_allreduce_grads_in_fp32 is forced for bf16);
    since the products that make a gradient add into that sum themselves
    (gradient_accumulation_fusion) nothing is left to do.
    """
    numerics = NUMERICS_OF_PRECISION[setup.precision]
    if setup.stack == "megatron" and numerics != "fp32":
        date = setup.software_date
        if is_lean(date, setup.features) or date is None:
            return 0.0
        if setup.precision == "fp16-amp":
            return 6.0
        return 0.0 if date >= FUSED_ACCUMULATION else 10.0
    beside_masters = numerics == "amp16" and DEEPSPEED in setup.features
    return 6.0 if numerics == "pure16" or beside_masters else 12.0
