"""How software sends tokens to their experts: features of records, and what follows from them.

A recipe decides all of this, not a release: Megatron-Bridge's of one date differ by device
(NVIDIA-NeMo/Megatron-Bridge, scripts/performance/configs, *_workload_base_configs.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...catalog.vocabulary import Stack
from ..constants import Constants

FUSED_DISPATCH = "deepep"
"""Feature: tokens go to experts and back by DeepEP's kernels or HybridEP's, permuted on the way.
A token crosses to a node once, for all of its experts there (DeepSeek-V3, arXiv:2412.19437, section
3.2.2); NCCL's all-to-all sends a copy for each of them."""
OVERLAPPED_EXPERTS = "overlapped-experts"
"""Feature: experts' exchanges of one micro-batch run beside the layers of another (Megatron's
overlap_moe_expert_parallel_comm, DeepSeek's DualPipe)."""
UNFUSED_EXPERTS = "unfused-experts"
"""Feature: the recipe leaves out what `versions.FUSED_EXPERTS` brought."""
GRAPHED = "cuda-graphs"
"""Feature: CUDA graphs launch layers with experts, or at least what precedes a dispatch."""
TOKEN_DROP = "token-drop"
"""Feature: experts take as many tokens as they have room for and drop others, so that all shapes
are known before."""

SEQUENTIAL_EXPERTS = "sequential-experts"
"""Feature: a rank runs the layers of its experts one after another, each product by itself
(Megatron's SequentialMLP, without moe_grouped_gemm), and no grouped kernel."""
SPLIT_BY_TENSOR = "experts-by-tensor"
"""Feature: tensor ranks split each expert's layers, as they do others, so that all of them take the
tokens of all (Megatron's expert_tensor_parallel_size equal to its tensor degree, which it is unless
told otherwise). Elsewhere a rank holds its experts whole, as recipes tell it."""


@dataclass(frozen=True)
class Dispatch:
    """How tokens go to their experts."""

    sends_once: bool
    """Whether a token crosses to a node once, for all of its experts there."""
    overlaps: bool
    """Whether another micro-batch computes meanwhile."""
    splits_experts: bool = False
    """Whether tensor ranks split each expert."""
    stands_still: bool = False
    """Whether an exchange is one call of NCCL, for which the products behind it wait."""


def dispatch_of(stack: Stack, features: frozenset[str]) -> Dispatch:
    """Return how tokens go to their experts."""
    return Dispatch(
        sends_once=FUSED_DISPATCH in features,
        stands_still=stack != "xla" and FUSED_DISPATCH not in features,
        overlaps=OVERLAPPED_EXPERTS in features,
        splits_experts=SPLIT_BY_TENSOR in features,
    )


def routing_passes(stack: Stack, features: frozenset[str], constants: Constants) -> float:
    """Return how often the rows of experts' grouped products are moved beside the products.

    Tokens are sorted by expert, padded, cast, weighted and put back, and groups are uneven. Around
    products that are not grouped nothing is left but what the trace shows: rows are gathered
    before, weighted and added behind.
    """
    if SEQUENTIAL_EXPERTS in features:
        return 0.0
    lean = FUSED_DISPATCH in features or stack == "xla"
    return constants["routing_passes.lean" if lean else "routing_passes"]


@dataclass(frozen=True)
class ExpertHost:
    """What the host takes for a layer with experts."""

    launch_s: float = 0.0
    """Of each launch."""
    product_s: float = 0.0
    """Of each expert's part of a grouped product."""
    waits: bool = False
    """Whether launches of a forward pass are not ahead of the device."""


def expert_host(stack: Stack, features: frozenset[str], constants: Constants) -> ExpertHost:
    """Return what the host takes for layers with experts, where it may set the pace.

    Megatron's grouped layers are Transformer Engine's, which multiplies by one call of cuBLAS an
    expert (`multi_stream_cublas_gemm` of its common/gemm/cublaslt_gemm.cu), casts each expert's
    rows and weights in a call of their own, and adds gradients by a hook for each weight. CUDA
    graphs of what precedes a dispatch leave that to the host; where shapes are known before, since
    tokens are dropped, graphs hold the whole layer.

    Where no token is dropped, the host waits in every forward pass of such a layer for how many
    each expert gets (MoEAlltoAllTokenDispatcher, `cuda_sync_point`; the splits that Transformer
    Engine's GroupedLinear takes are a list), so that what Python launches there is not ahead of
    the device. Where exchanges run beside another micro-batch, the experts' backward pass of that
    one is launched before the host waits (core/models/common/model_chunk_schedule_plan.py of
    Megatron), so that the device goes on for as long as the host keeps up.
    """
    if stack != "megatron" or features >= {GRAPHED, TOKEN_DROP}:
        return ExpertHost()
    product_s = constants["launch_s.megatron-expert"]
    if GRAPHED in features:
        return ExpertHost(product_s=product_s)
    return ExpertHost(
        launch_s=constants["launch_s.megatron-python"],
        product_s=product_s,
        waits=not features & {TOKEN_DROP, OVERLAPPED_EXPERTS},
    )
