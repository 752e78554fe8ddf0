"""Parameters that one rank holds when stages, tensor ranks and experts divide a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..profiles.profile import BlockGroup, Kernel, ParameterTensor, Profile, StepTrace
from .fsdp import Unit
from .layout import Layout
from .roles import Roles, is_dense_linear, is_expert_product, roles_of
from .split import Split
from .stages import stage_of_instances


@dataclass(frozen=True)
class RankUnits:
    """FSDP units of one rank of a stage; experts apart, for other ranks share their gradients."""

    dense: tuple[Unit, ...]
    experts: tuple[Unit, ...]

    @property
    def parameters(self) -> float:
        """Parameters on the rank."""
        return sum(unit.count * unit.parameters for unit in (*self.dense, *self.experts))

    @property
    def trainable(self) -> float:
        """Trainable parameters on the rank."""
        return sum(unit.count * unit.trainable for unit in (*self.dense, *self.experts))

    def sharded(self, layout: Layout, *, trainable: bool = True) -> float:
        """Return parameters of the rank's share where the state is divided over `shard` ranks."""
        dense = sum(u.count * (u.trainable if trainable else u.parameters) for u in self.dense)
        expert = sum(u.count * (u.trainable if trainable else u.parameters) for u in self.experts)
        over = expert_data_layout(layout)
        return dense / layout.shard + (expert / over.shard if expert else 0.0)


def data_layout(layout: Layout) -> Layout:
    """Return the data dimension of a hybrid layout: context ranks share gradients too."""
    return Layout(
        data=layout.data * layout.context, shard=layout.shard, zero_stage=layout.zero_stage
    )


def expert_data_layout(layout: Layout) -> Layout:
    """Return the ranks that hold the same experts, as a data dimension."""
    ranks = layout.data * layout.context * layout.tensor // layout.expert
    whole = layout.shard >= layout.data * layout.context
    shard = ranks if layout.zero_stage and whole else min(layout.shard, ranks)
    return Layout(data=ranks, shard=max(1, shard), zero_stage=layout.zero_stage)


def rank_units(
    profile: Profile, units: Sequence[Unit], trace: StepTrace, layout: Layout, split: Split
) -> list[RankUnits]:
    """Return what a rank of each stage holds.

    Args:
        profile: parameters and linear layers by block.
        units: as the stack shards them.
        trace: shows which layers are split, which are experts, and where the stages begin.
        layout: stages.
        split: how linear layers and experts are divided.
    """
    roles = roles_of(trace, splits_head=split.splits_vocabulary)
    by_stage = _blocks_by_stage(trace, layout)
    groups = {group.name: group for group in profile.blocks}
    root = units[-1]
    ends = _root_parameters(trace, split, root)
    stages = []
    for stage, counts in enumerate(by_stage):
        dense, experts = [], []
        for unit in units[:-1]:
            if not counts[unit.name]:
                continue
            weights = _expert_weights(trace, unit.name)
            whole = replace(unit, count=counts[unit.name])
            dense.append(_dense_share(whole, groups[unit.name or ""], roles, split, weights))
            if weights:
                experts.append(_scaled(whole, weights / split.expert / unit.parameters))
        at_root = ends[0] if stage == 0 else 0.0
        if stage == layout.pipeline - 1:
            at_root += ends[1]
        share = min(1.0, at_root / root.parameters) if root.parameters else 1.0
        dense.append(root if share == 1 else _scaled(root, share))
        stages.append(RankUnits(tuple(dense), tuple(experts)))
    return stages


def _blocks_by_stage(trace: StepTrace, layout: Layout) -> list[Counter[str | None]]:
    stages = stage_of_instances(trace, layout)
    found: list[Counter[str | None]] = [Counter() for _ in range(layout.pipeline)]
    for index, stage in zip(trace.schedule, stages, strict=True):
        segment = trace.segments[index]
        if segment.phase == "forward" and segment.block is not None:
            found[stage][segment.block] += 1
    return found


def _dense_share(
    unit: Unit, group: BlockGroup, roles: dict[str | None, Roles], split: Split, experts: float
) -> Unit:
    """Return a block's unit with its split layers divided and its experts left out."""
    t = split.tensor
    if t == 1 and not experts:
        return unit
    role_of = _by_name(roles.get(unit.name), group)
    divided = sum(
        linear.parameters for linear in group.linears if role_of.get(linear.name) is not None
    )
    kept = unit.parameters - experts - divided * (1 - 1 / t)
    share = kept / unit.parameters
    scaled = _scaled(unit, share)
    return replace(scaled, tensors=_split_tensors(unit.tensors, group, role_of, t))


def _by_name(roles: Roles | None, group: BlockGroup) -> dict[str, str]:
    """Return the roles of a block's split layers by their names inside the block."""
    found: dict[str, str] = {}
    for linear in group.linears:
        for module, role in (roles.role if roles else {}).items():
            if role != "whole" and module.endswith(f".{linear.name}"):
                found[linear.name] = role
    return found


def _split_tensors(
    tensors: tuple[ParameterTensor, ...], group: BlockGroup, role_of: dict[str, str], t: int
) -> tuple[ParameterTensor, ...]:
    """Return the tensors as a tensor rank holds them; the shapes say which layer each is of.

    Three-dimensional expert weights are among them only as rows, so that a unit with experts is
    padded as a whole.
    """
    if len(group.linears) * 2 + 8 < len(tensors) or any(
        t_.rows * t_.row_elements > max((x.parameters for x in group.linears), default=0)
        for t_ in tensors
    ):
        return ()
    shapes = {
        (linear.out_features, linear.in_features): role_of[linear.name]
        for linear in group.linears
        if linear.name in role_of
    }
    columns = {
        linear.out_features for linear in group.linears if role_of.get(linear.name) == "column"
    }
    split = []
    for tensor in tensors:
        role = shapes.get((tensor.rows, tensor.row_elements))
        rows, elements = tensor.rows, tensor.row_elements
        if role == "column" or (elements == 1 and rows in columns and rows not in _widths(group)):
            rows //= t
        elif role == "row":
            elements //= t
        split.append(tensor.model_copy(update={"rows": rows, "row_elements": elements}))
    return tuple(split)


def _widths(group: BlockGroup) -> set[int]:
    """Return the residual widths of a block: a norm's weights have them, and are not split."""
    return {group.linears[0].in_features} if group.linears else set()


def _expert_weights(trace: StepTrace, block: str | None) -> float:
    """Return the parameters of all experts of one block."""
    for segment in trace.segments:
        if segment.phase == "forward" and segment.block == block:
            return sum(_weights(k) for k in segment.kernels if is_expert_product(k))
    return 0.0


def _weights(kernel: Kernel) -> float:
    dims = kernel.dims
    return dims["batch"].base * dims["n"].base * dims["k"].base


def _root_parameters(trace: StepTrace, split: Split, root: Unit) -> tuple[float, float]:
    """Return parameters of a rank before the first layer and behind the last.

    A tied embedding stands on both, as stages that are apart each need it.
    """
    before, behind = 0.0, 0.0
    seen_block = False
    tables: list[float] = []
    whole_before = whole_behind = 0.0
    for index in trace.schedule:
        segment = trace.segments[index]
        if segment.phase != "forward":
            break
        seen_block = seen_block or segment.block is not None
        if segment.block is not None:
            continue
        for kernel in segment.kernels:
            if kernel.kind == "embedding" and kernel.module and "elements" in kernel.dims:
                tables.append(kernel.dims["elements"].base)
            elif is_dense_linear(kernel):
                size = _weights(kernel)
                if seen_block:
                    whole_behind += size
                    behind += size / (split.tensor if split.splits_vocabulary else 1)
                else:
                    whole_before += size
                    before += size
    largest = max(tables, default=0.0)
    whole_before += sum(tables)
    before += sum(tables) - largest
    before += largest / (split.tensor if split.splits_vocabulary else 1)
    rest = max(0.0, root.parameters - whole_before - whole_behind)
    if not whole_behind:
        return before + rest, 0.0
    return before, behind + rest


def _scaled(unit: Unit, share: float) -> Unit:
    return replace(
        unit,
        parameters=round(unit.parameters * share),
        trainable=round(unit.trainable * share),
        tensors=(),
    )
