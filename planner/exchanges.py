"""What tensor, context and expert ranks send each other between the kernels of a step.

The volumes of torch's own plans are checked against torch in tests/planner/test_torch_volumes.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..profiles.profile import Affine, Kernel, Segment
from .collectives import Collective
from .degrees import Split
from .roles import Roles, is_dense_linear, is_expert_product

LOSS_REDUCTIONS = 3
"""Of a loss on split logits: the largest logit, the sum of exponentials, the target's logit
(Shoeybi et al. 2019, section 3; torch's loss_parallel does the same)."""


@dataclass(frozen=True)
class Exchange:
    """A collective that a segment runs: among which ranks, and its whole buffer."""

    among: str
    """tensor, context or expert."""
    kind: Collective
    total_bytes: Affine
    count: int = 1
    copies: float = 1.0
    """How many experts a token goes to."""


def exchanges_of(
    segment: Segment, roles: Roles, split: Split, table_elements: float
) -> list[Exchange]:
    """Return the collectives of one segment.

    Args:
        segment: of the whole step.
        roles: of its linear layers.
        split: degrees.
        table_elements: size of the embedding that is split by the vocabulary.
    """
    exchanges = []
    if split.tensor > 1:
        exchanges += _of_residual_stream(segment, roles, split, table_elements)
        exchanges += _of_loss(segment, roles, split)
        if split.reduces_norms:
            exchanges += _of_norms(segment, roles)
    if split.context > 1:
        exchanges += _ring_exchanges(segment, roles, split)
    if split.expert > 1:
        exchanges += _expert_exchanges(segment, split)
    return exchanges


def is_split_table(kernel: Kernel, split: Split, table_elements: float) -> bool:
    """Return whether a kernel looks up the embedding that is split by the vocabulary."""
    return (
        split.splits_vocabulary
        and kernel.kind == "embedding"
        and bool(kernel.module)
        and kernel.dims["elements"].base == table_elements
    )


def _of_residual_stream(
    segment: Segment, roles: Roles, split: Split, table_elements: float
) -> list[Exchange]:
    """Return reductions of the residual stream: one a group and pass.

    With sequence parallelism an all-gather and a reduce-scatter move the same bytes.
    """
    backward = segment.phase == "backward"
    seen: dict[object, Affine] = {}
    for kernel in segment.kernels:
        role = roles.role.get(kernel.module, "whole")
        if is_dense_linear(kernel) and role == ("column" if backward else "row"):
            if kernel.dims["k"].per_sample:
                continue  # The product that makes the weight's gradient.
            per_layer = backward and split.reduces_per_layer
            key = kernel.module if per_layer else roles.group[kernel.module]
            seen.setdefault(key, kernel.bytes_written)
        elif is_split_table(kernel, split, table_elements) and not backward:
            seen[kernel.module] = kernel.bytes_written
    kinds: tuple[Collective, ...] = ("all_reduce",)
    if split.sequence_parallel:
        kinds = ("all_gather", "reduce_scatter")
    share = 1 / split.context
    return [
        Exchange("tensor", kind, Affine(0, size.per_sample * share))
        for size in seen.values()
        for kind in kinds
    ]


def _of_loss(segment: Segment, roles: Roles, split: Split) -> list[Exchange]:
    """Return what the loss needs of the logits that other ranks hold."""
    if segment.block is not None or segment.phase != "forward":
        return []
    heads = [
        kernel
        for kernel in segment.kernels
        if is_dense_linear(kernel) and roles.role.get(kernel.module) == "column"
    ]
    if not heads:
        return []
    share = 1 / split.context
    if split.gathers_logits:
        logits = heads[-1].bytes_written.per_sample
        return [Exchange("tensor", "all_gather", Affine(0, logits * share))]
    tokens = heads[-1].dims["m"].per_sample
    return [Exchange("tensor", "all_reduce", Affine(0, 4 * tokens * share), LOSS_REDUCTIONS)]


def _of_norms(segment: Segment, roles: Roles) -> list[Exchange]:
    """Return reductions of the gradients of norms, of which each rank has those of its tokens."""
    if segment.phase != "backward" or not roles.shapes:
        return []
    width = next(iter(roles.shapes.values())).width_in
    found = []
    for kernel in segment.kernels:
        size = width * (4 if kernel.dtype == "fp32" else 2)
        # Weight, or weight and bias, of the residual stream's width.
        parameters, rest = divmod(kernel.bytes_written.base, size)
        if kernel.kind == "norm" and parameters and not rest:
            found.append(Exchange("tensor", "all_reduce", Affine(size), int(parameters)))
    return found


def _ring_exchanges(segment: Segment, roles: Roles, split: Split) -> list[Exchange]:
    """Return the keys and values (and, backward, their gradients) that go round the ring."""
    exchanges = []
    for kernel in segment.kernels:
        if kernel.kind != "attention":
            continue
        dims = kernel.dims
        elements = 2 * dims["kv_heads"].base * dims["head_dim"].base * dims["seq_kv"].base
        width = 4 if kernel.dtype == "fp32" else 2
        batch = Affine(*dims["batch"])
        held = roles.heads.keys_of_rank(split.tensor) / roles.heads.key if roles.heads else 1.0
        per_sample = elements * width * held
        size = Affine(batch.base * per_sample, batch.per_sample * per_sample)
        exchanges.append(Exchange("context", "all_gather", size, 2 if kernel.backward else 1))
    return exchanges


def _expert_exchanges(segment: Segment, split: Split) -> list[Exchange]:
    """Return the all-to-alls that bring tokens to their experts and back: two a pass.

    Each is as large as what goes into a layer's first product of experts: tokens · active experts
    · hidden, divided by the ranks that hold the micro-batch's tokens.
    """
    widths = [
        kernel
        for kernel in segment.kernels
        if is_expert_product(kernel) and not kernel.dims["k"].per_sample
    ]
    if not widths:
        return []
    first = widths[-1] if segment.phase != "backward" else widths[0]
    # Tokens · width of the result of the last forward product, or of the gradient that enters it.
    dims = first.dims
    width = dims["n"].base if segment.phase != "backward" else dims["k"].base
    bytes_each = 4 if first.dtype == "fp32" else 2
    share = width * bytes_each * dims["batch"].base / (split.tensor * split.context)
    size = Affine(0, dims["m"].per_sample * share)
    tokens = max(
        (k.dims["m"].per_sample for k in segment.kernels if is_dense_linear(k)), default=0.0
    )
    copies = dims["batch"].base * dims["m"].per_sample / tokens if tokens else 1.0
    return [Exchange("expert", "all_to_all", size, 2, max(1.0, copies))]
