"""What tensor, context and expert ranks send each other between the kernels of a step.

The volumes of torch's own plans are checked against torch in
tests/planner/parallelism/test_torch_volumes.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...catalog.vocabulary import Collective
from ...profiles.profile import Affine, Kernel, Segment
from ..software.fp8_operands import AS_COMPUTED
from .column_row_parallel import ParallelStyles, is_dense_linear, is_expert_product
from .degrees import Split

LOSS_REDUCTIONS = 3
"""All-reduces of a loss on split logits: largest logit, sum of exponentials, the target's logit
(Shoeybi et al. 2019, section 3; torch's loss_parallel does the same)."""


@dataclass(frozen=True)
class Exchange:
    """A collective that a segment runs: among which ranks, and its whole buffer."""

    among: str
    """tensor, context, expert, or expert_tensor: tensor ranks that split each expert."""
    kind: Collective
    total_bytes: Affine
    count: int = 1
    copies: float = 1.0
    """How many experts a token goes to."""
    copied: float = 0.0
    """How often the buffer is read or written beside the collective."""
    copied_of_one: float = 0.0
    """The same where it is of a single sample."""


def exchanges_of(
    segment: Segment, styles: ParallelStyles, split: Split, table: Kernel | None
) -> list[Exchange]:
    """Return the collectives of one segment.

    Args:
        segment: of the whole step.
        styles: of its linear layers.
        split: degrees.
        table: lookup in the embedding that is split by the vocabulary.
    """
    exchanges = []
    if split.tensor > 1:
        exchanges += _of_residual_stream(segment, styles, split, table)
        exchanges += _of_loss(segment, styles, split)
        if split.reduces_norms:
            exchanges += _of_norms(segment, styles)
    if split.context > 1:
        exchanges += _ring_exchanges(segment, styles, split)
    if split.expert > 1:
        exchanges += _expert_exchanges(segment, split)
    return exchanges


def is_table(kernel: Kernel, table: Kernel | None) -> bool:
    """Return whether a kernel looks up this embedding, or makes its gradient."""
    return (
        table is not None
        and kernel.kind == "embedding"
        and kernel.dims["elements"].base == table.dims["elements"].base
    )


def _of_residual_stream(
    segment: Segment, styles: ParallelStyles, split: Split, table: Kernel | None
) -> list[Exchange]:
    """Return reductions of the residual stream: one a group and pass.

    With sequence parallelism, gathering what a group takes and scattering what it gives move the
    same bytes.
    """
    backward = segment.phase == "backward"
    entered: dict[object, float] = {}
    left: dict[object, float] = {}
    for kernel in segment.kernels:
        style = styles.style.get(kernel.module, "whole")
        if table is not None and split.splits_vocabulary and is_table(kernel, table):
            (entered if backward else left)[kernel.module] = table.bytes_written.per_sample
        elif is_dense_linear(kernel) and style != "whole" and kernel.dims["m"].per_sample:
            leaves = style == ("column" if backward else "row")
            per_layer = backward and split.reduces_per_layer
            key = kernel.module if per_layer else styles.group[kernel.module]
            if leaves:
                left.setdefault(key, kernel.bytes_written.per_sample)
            else:
                width = _gathered_width(kernel, segment, split)
                size = width * kernel.dims["m"].per_sample * kernel.dims["k"].base
                entered.setdefault(key, size)
    share = 1 / split.context

    def each(kind: Collective, sizes: dict[object, float]) -> list[Exchange]:
        copied, of_one = _copied(kind, segment, split)
        return [
            Exchange("tensor", kind, Affine(0, size * share), copied=copied, copied_of_one=of_one)
            for size in sizes.values()
        ]

    if split.sequence_parallel:
        return [*each("all_gather", entered), *each("reduce_scatter", left)]
    return each("all_reduce", left)


def _copied(kind: Collective, segment: Segment, split: Split) -> tuple[float, float]:
    """Return how often a collective's buffer is copied, and that of a single sample."""
    copies = split.copies
    if kind == "all_reduce":
        return copies.reduced, copies.reduced
    if kind == "reduce_scatter":
        return copies.scattered, copies.scattered
    copied = copies.gathered if segment.phase == "forward" else copies.gathered_again
    return copied, 0.0 if copies.views_one else copied


def _gathered_width(kernel: Kernel, segment: Segment, split: Split) -> float:
    """Return bytes an element of what a layer's product takes of other ranks."""
    if kernel.dtype == "fp32":
        return 4
    if segment.block is None:  # Recipes keep the head in 16 bits.
        return AS_COMPUTED.forward_bytes
    gathered = split.gathered
    return gathered.backward_bytes if segment.phase == "backward" else gathered.forward_bytes


def _of_loss(segment: Segment, styles: ParallelStyles, split: Split) -> list[Exchange]:
    """Return what the loss needs of the logits that other ranks hold.

    Gathered logits are padded to equal parts.
    """
    if segment.block is not None or segment.phase != "forward":
        return []
    heads = [
        kernel
        for kernel in segment.kernels
        if is_dense_linear(kernel) and styles.style.get(kernel.module) == "column"
    ]
    if not heads:
        return []
    head, share = heads[-1], 1 / split.context
    if split.gathers_logits:
        vocabulary = head.dims["n"].base
        padding = -(-vocabulary // split.tensor) * split.tensor / vocabulary
        logits = head.bytes_written.per_sample * padding
        copied = split.copies.gathered
        size = Affine(0, logits * share)
        return [Exchange("tensor", "all_gather", size, copied=copied, copied_of_one=copied)]
    tokens = head.dims["m"].per_sample
    return [Exchange("tensor", "all_reduce", Affine(0, 4 * tokens * share), LOSS_REDUCTIONS)]


def _of_norms(segment: Segment, styles: ParallelStyles) -> list[Exchange]:
    """Return reductions of the gradients of norms, of which each rank has those of its tokens."""
    if segment.phase != "backward" or not styles.shapes:
        return []
    width = next(iter(styles.shapes.values())).width_in
    found = []
    for kernel in segment.kernels:
        size = width * (4 if kernel.dtype == "fp32" else 2)
        # Weight, or weight and bias, of the residual stream's width.
        parameters, rest = divmod(kernel.bytes_written.base, size)
        if kernel.kind == "norm" and parameters and not rest:
            found.append(Exchange("tensor", "all_reduce", Affine(size), int(parameters)))
    return found


def _ring_exchanges(segment: Segment, styles: ParallelStyles, split: Split) -> list[Exchange]:
    """Return the keys and values (and, backward, their gradients) that go round the ring."""
    exchanges = []
    for kernel in segment.kernels:
        if kernel.kind != "attention":
            continue
        dims = kernel.dims
        elements = 2 * dims["kv_heads"].base * dims["head_dim"].base * dims["seq_kv"].base
        width = 4 if kernel.dtype == "fp32" else 2
        batch = Affine(*dims["batch"])
        held = styles.heads.keys_of_rank(split.tensor) / styles.heads.key if styles.heads else 1.0
        per_sample = elements * width * held
        size = Affine(batch.base * per_sample, batch.per_sample * per_sample)
        exchanges.append(Exchange("context", "all_gather", size, 2 if kernel.backward else 1))
    return exchanges


def _expert_exchanges(segment: Segment, split: Split) -> list[Exchange]:
    """Return the all-to-alls that bring tokens to their experts and back: two a pass.

    Each is as large as what goes into a layer's first product of experts: tokens · active experts
    · hidden, divided by the ranks that hold the micro-batch's tokens. Tensor ranks that split each
    expert gather what all of them received, and scatter the sums of what they made.
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
    exchanges = [Exchange("expert", "all_to_all", size, 2, max(1.0, copies))]
    if split.expert_tensor > 1:
        whole = size.times(split.expert_tensor)
        exchanges.append(Exchange("expert_tensor", "all_gather", whole, 2))
    return exchanges
