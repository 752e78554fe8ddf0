"""Which linear layers are column-parallel, which row-parallel, and which every rank has whole.

Shoeybi et al. 2019 (Megatron-LM, arXiv:1909.08053, section 3): the layer that leads out of the
residual stream is split by its outputs, the layer that leads back by its inputs, so that a pair of
them needs one all-reduce. Both are read from the traced kernels in their order: a layer that gives
the residual width after an attention core, or from another width, leads back.

Ranks divide attention by heads. Where there are more ranks than keys and values have heads, each
rank keeps the heads that its queries need (Megatron-LM, megatron/core/transformer/attention.py,
`num_query_groups < world_size`; GSPMD replicates them too).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ...profiles.profile import Kernel, Segment, StepTrace

ParallelStyle = Literal["column", "row", "whole"]


class LinearShape(NamedTuple):
    """A linear layer as its forward kernel shows it."""

    module: str
    width_in: float
    width_out: float
    after_core: bool
    """Whether an attention core ran since the last layer that gave the residual width."""
    before_core: bool
    """Whether it ran before the block's first attention core."""


class Heads(NamedTuple):
    """Heads of an attention core: of queries, of keys and values, and their width."""

    query: float
    key: float
    dim: float

    def keys_of_rank(self, tensor: int) -> float:
        """Return the heads of keys that one of `tensor` ranks holds."""
        if self.key % tensor == 0:
            return self.key / tensor
        return 1.0 if tensor % self.key == 0 else self.key


@dataclass(frozen=True)
class ParallelStyles:
    """Parallel styles of the linear layers of one block group (or of the root), by module path."""

    shapes: dict[str, LinearShape]
    style: dict[str, ParallelStyle]
    group: dict[str, int]
    """Layers of one group share a reduction: columns that leave the residual stream together, and
    the row layer that leads back."""
    groups: int
    heads: Heads | None = None

    @property
    def hidden(self) -> float:
        """Width of the residual stream, which the first layer takes; 0 where there is none."""
        return next((shape.width_in for shape in self.shapes.values()), 0.0)

    def share(self, module: str, tensor: int) -> float:
        """Return the part of a split layer's weights that one of `tensor` ranks holds."""
        shape, heads = self.shapes[module], self.heads
        if heads is None or not shape.before_core or heads.key % tensor == 0:
            return 1 / tensor
        keys, query = heads.keys_of_rank(tensor), heads.query / tensor
        if shape.width_out == (heads.query + 2 * heads.key) * heads.dim:
            return (query + 2 * keys) / (heads.query + 2 * heads.key)
        if shape.width_out == heads.query * heads.dim:
            return 1 / tensor
        of_keys = shape.width_out in (heads.key * heads.dim, 2 * heads.key * heads.dim)
        return keys / heads.key if of_keys else 1 / tensor


SPLIT_EXPERTS = "experts"
"""Dimension of a product whose experts are spread over ranks: those of all of them."""


GATHERED_RANKS = "gathered from"
"""Dimension of a product in 8 bits whose input, or gradient, ranks cast before they gather it: how
many."""


def is_expert_product(kernel: Kernel) -> bool:
    """Return whether a kernel is the grouped product of a mixture's experts.

    That of a rank with a single expert is one too, though no group is left: it says so.
    """
    if kernel.kind != "gemm" or not kernel.linear:
        return False
    batch = kernel.dims.get("batch")
    return SPLIT_EXPERTS in kernel.dims or (batch is not None and batch.base > 1)


def is_dense_linear(kernel: Kernel) -> bool:
    """Return whether a kernel is a linear layer's product that is not of experts."""
    return kernel.kind == "gemm" and kernel.linear and not is_expert_product(kernel)


def is_attention_core(kernel: Kernel) -> bool:
    """Return whether a kernel multiplies queries, keys and values, fused or written out."""
    return kernel.kind == "attention" or (kernel.kind == "gemm" and not kernel.linear)


def parallel_styles(trace: StepTrace, *, splits_head: bool) -> dict[str | None, ParallelStyles]:
    """Return the styles by block group; None is the root.

    Args:
        trace: its forward segments show the layers in order.
        splits_head: whether the root's last layer is split by its outputs (the vocabulary).
    """
    forward: dict[str | None, list[Segment]] = {}
    for segment in trace.segments:
        if segment.phase == "forward":
            forward.setdefault(segment.block, []).append(segment)
    styles = {}
    for block, segments in forward.items():
        kernels = [kernel for segment in segments for kernel in segment.kernels]
        shapes = linear_shapes(kernels)
        if block is None:
            styles[block] = _root_styles(shapes, splits_head)
        else:
            styles[block] = _block_styles(shapes, _heads(kernels, shapes))
    return styles


def linear_shapes(kernels: Sequence[Kernel]) -> list[LinearShape]:
    """Return the linear layers of forward kernels in launch order."""
    shapes: list[LinearShape] = []
    after_core, before_core, width = False, True, None
    for kernel in kernels:
        if is_attention_core(kernel):
            after_core, before_core = True, False
        elif is_dense_linear(kernel):
            k, n = kernel.dims["k"].base, kernel.dims["n"].base
            width = k if width is None else width
            shapes.append(LinearShape(kernel.module, k, n, after_core, before_core))
            if n == width and after_core:
                after_core = False
    return shapes


def _heads(kernels: Sequence[Kernel], shapes: Sequence[LinearShape]) -> Heads | None:
    """Return the heads of a block's attention core, None where it has none that can be told.

    The first product of attention that is written out shows the heads of queries; those of keys
    follow from the width of the layers before it.
    """
    core = next((kernel for kernel in kernels if is_attention_core(kernel)), None)
    if core is None:
        return None
    dims = core.dims
    if core.kind == "attention":
        return Heads(dims["heads"].base, dims["kv_heads"].base, dims["head_dim"].base)
    query, dim = dims["batch"].per_sample, dims["k"].base
    widths = [shape.width_out for shape in shapes if shape.before_core]
    if not widths or not query or not dim:
        return None
    key = (widths[0] / dim - query) / 2 if len(widths) == 1 else min(widths) / dim
    whole = key >= 1 and key.is_integer() and query % key == 0
    return Heads(query, key, dim) if whole else None


def _root_styles(shapes: Sequence[LinearShape], splits_head: bool) -> ParallelStyles:
    style: dict[str, ParallelStyle] = {shape.module: "whole" for shape in shapes}
    group: dict[str, int] = {}
    if splits_head and shapes:
        style[shapes[-1].module] = "column"
        group[shapes[-1].module] = 0
    return ParallelStyles({s.module: s for s in shapes}, style, group, len(group))


def _block_styles(shapes: Sequence[LinearShape], heads: Heads | None) -> ParallelStyles:
    width = shapes[0].width_in if shapes else 0.0
    style: dict[str, ParallelStyle] = {}
    group: dict[str, int] = {}
    columns: list[str] = []
    groups = 0
    for i, shape in enumerate(shapes):
        following = shapes[i + 1] if i + 1 < len(shapes) else None
        leads_back = shape.width_out == width and (shape.after_core or shape.width_in != width)
        style[shape.module] = "whole"
        if leads_back and columns:
            style[shape.module] = "row"
            group.update(dict.fromkeys((*columns, shape.module), groups))
            for column in columns:
                style[column] = "column"
            groups, columns = groups + 1, []
        elif not (following and width not in (following.width_in, following.width_out)):
            # A layer whose result another inner layer takes is a low-rank one: every rank has it.
            columns.append(shape.module)
    return ParallelStyles({s.module: s for s in shapes}, style, group, groups, heads)
