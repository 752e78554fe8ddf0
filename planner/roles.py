"""Which linear layers tensor parallelism splits by columns, which by rows, which not at all.

Shoeybi et al. 2019 (Megatron-LM, arXiv:1909.08053, section 3): the layer that leads out of the
residual stream is split by its outputs, the layer that leads back by its inputs, so that a pair of
them needs one all-reduce. Both are read from the traced kernels in their order: a layer that gives
the residual width after an attention core, or from another width, leads back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..profiles.profile import Kernel, Segment, StepTrace

Role = Literal["column", "row", "whole"]


class LinearShape(NamedTuple):
    """A linear layer as its forward kernel shows it."""

    module: str
    width_in: float
    width_out: float
    after_core: bool
    """Whether an attention core ran since the last layer that gave the residual width."""


@dataclass(frozen=True)
class Roles:
    """Roles of the linear layers of one block group (or of the root), by module path."""

    shapes: dict[str, LinearShape]
    role: dict[str, Role]
    group: dict[str, int]
    """Layers of one group share a reduction: columns that leave the residual stream together, and
    the row layer that leads back."""
    groups: int


def is_expert_product(kernel: Kernel) -> bool:
    """Return whether a kernel is the grouped product of a mixture's experts."""
    batch = kernel.dims.get("batch")
    return kernel.kind == "gemm" and kernel.linear and batch is not None and batch.base > 1


def is_dense_linear(kernel: Kernel) -> bool:
    """Return whether a kernel is a linear layer's product that is not of experts."""
    return kernel.kind == "gemm" and kernel.linear and not is_expert_product(kernel)


def roles_of(trace: StepTrace, *, splits_head: bool) -> dict[str | None, Roles]:
    """Return the roles by block group; None is the root.

    Args:
        trace: its forward segments show the layers in order.
        splits_head: whether the root's last layer is split by its outputs (the vocabulary).
    """
    forward: dict[str | None, list[Segment]] = {}
    for segment in trace.segments:
        if segment.phase == "forward":
            forward.setdefault(segment.block, []).append(segment)
    roles = {}
    for block, segments in forward.items():
        kernels = [kernel for segment in segments for kernel in segment.kernels]
        shapes = linear_shapes(kernels)
        if block is None:
            roles[block] = _root_roles(shapes, splits_head)
        else:
            roles[block] = _block_roles(shapes)
    return roles


def linear_shapes(kernels: Sequence[Kernel]) -> list[LinearShape]:
    """Return the linear layers of forward kernels in launch order."""
    shapes: list[LinearShape] = []
    after_core, width = False, None
    for kernel in kernels:
        if kernel.kind == "attention" or (kernel.kind == "gemm" and not kernel.linear):
            after_core = True
        elif is_dense_linear(kernel):
            k, n = kernel.dims["k"].base, kernel.dims["n"].base
            width = k if width is None else width
            shapes.append(LinearShape(kernel.module, k, n, after_core))
            if n == width and after_core:
                after_core = False
    return shapes


def _root_roles(shapes: Sequence[LinearShape], splits_head: bool) -> Roles:
    role: dict[str, Role] = {shape.module: "whole" for shape in shapes}
    group: dict[str, int] = {}
    if splits_head and shapes:
        role[shapes[-1].module] = "column"
        group[shapes[-1].module] = 0
    return Roles({s.module: s for s in shapes}, role, group, len(group))


def _block_roles(shapes: Sequence[LinearShape]) -> Roles:
    width = shapes[0].width_in if shapes else 0.0
    role: dict[str, Role] = {}
    group: dict[str, int] = {}
    columns: list[str] = []
    groups = 0
    for i, shape in enumerate(shapes):
        following = shapes[i + 1] if i + 1 < len(shapes) else None
        leads_back = shape.width_out == width and (shape.after_core or shape.width_in != width)
        role[shape.module] = "whole"
        if leads_back and columns:
            role[shape.module] = "row"
            group.update(dict.fromkeys((*columns, shape.module), groups))
            for column in columns:
                role[column] = "column"
            groups, columns = groups + 1, []
        elif not (following and width not in (following.width_in, following.width_out)):
            # A layer whose result another inner layer takes is a low-rank one: every rank has it.
            columns.append(shape.module)
    return Roles({s.module: s for s in shapes}, role, group, groups)
