"""Parameters that one rank holds when stages, tensor ranks and experts divide a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

import numpy as np

from ...profiles.profile import BlockGroup, Kernel, ParameterTensor, Profile, StepTrace
from ..plan.layout import Layout
from .column_row_parallel import ParallelStyles, is_dense_linear, is_expert_product, parallel_styles
from .fsdp import Unit
from .pipeline_stages import stage_counts, stage_of_instances
from .rank_trace import Split


@dataclass(frozen=True)
class RankUnits:
    """FSDP units of one rank of a stage; experts apart, for other ranks share their gradients."""

    dense: tuple[Unit, ...]
    experts: tuple[Unit, ...]
    expert_tensor: int = 1
    """Among how many tensor ranks each expert is split."""

    @property
    def parameters(self) -> float:
        """Parameters on the rank."""
        return sum(unit.count * unit.parameters for unit in (*self.dense, *self.experts))

    @property
    def trainable(self) -> float:
        """Trainable parameters on the rank."""
        return sum(unit.count * unit.trainable for unit in (*self.dense, *self.experts))

    @property
    def sizes(self) -> tuple[tuple[object, ...], ...]:
        """What tells the units of one model and one split from others."""
        return tuple(
            (unit.name, unit.count, unit.parameters, unit.trainable, len(unit.tensors))
            for unit in (*self.dense, *self.experts)
        )

    def sharded(self, layout: Layout, *, trainable: bool = True) -> float:
        """Return parameters of the rank's share where the state is divided over `shard` ranks."""
        dense = sum(u.count * (u.trainable if trainable else u.parameters) for u in self.dense)
        expert = sum(u.count * (u.trainable if trainable else u.parameters) for u in self.experts)
        over = expert_data_layout(layout, self.expert_tensor)
        return dense / layout.shard + (expert / over.shard if expert else 0.0)


@lru_cache(maxsize=65536)
def data_layout(layout: Layout) -> Layout:
    """Return the data dimension of a hybrid layout: context ranks share gradients too.

    Of a pipeline it says whether there is one, where that changes what FSDP sends and holds.
    """
    return Layout(
        data=layout.data * layout.context,
        shard=layout.shard,
        zero_stage=layout.zero_stage,
        pipeline=_several(layout),
    )


def _several(layout: Layout) -> int:
    """Return 2 for any number of stages beside FSDP, else 1."""
    return 2 if layout.zero_stage == 3 and layout.pipeline > 1 else 1


@lru_cache(maxsize=65536)
def expert_data_layout(layout: Layout, expert_tensor: int = 1) -> Layout:
    """Return the ranks that hold the same experts, as a data dimension.

    Where copies of the sharded state stand side by side (HSDP), as many of these ranks share one as
    go into both: on 3 nodes of 8, experts that are dealt to 2 ranks have 12 of them, in fours.
    """
    ranks = layout.data * layout.context * layout.tensor // (layout.expert * expert_tensor)
    whole = layout.shard >= layout.data * layout.context
    shard = ranks if layout.zero_stage and whole else gcd(layout.shard, ranks)
    return Layout(data=ranks, shard=shard, zero_stage=layout.zero_stage, pipeline=_several(layout))


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
    return split_units(profile, units, trace, split).by_stage(layout)


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitUnits:
    """What ranks of one split hold of each block, from which those of every pipeline follow."""

    trace: StepTrace
    split: Split
    blocks: tuple[tuple[Unit, Unit | None], ...]
    """(dense, experts) of one block of each group."""
    root: Unit
    ends: tuple[float, float]
    """The root's parameters before the first layer and behind the last."""

    def by_stage(self, layout: Layout) -> list[RankUnits]:
        """Return what a rank of each stage holds; of equal stages one object."""
        made: dict[tuple[object, ...], RankUnits] = {}
        found = []
        for stage, counts in enumerate(self._blocks_by_stage(layout)):
            at_root = self.ends[0] if stage == 0 else 0.0
            if stage == layout.pipeline - 1:
                at_root += self.ends[1]
            key = (*counts, at_root)
            if key not in made:
                made[key] = self._units(counts, at_root, layout)
            found.append(made[key])
        return found

    def _units(self, counts: Sequence[int], at_root: float, layout: Layout) -> RankUnits:
        held = [(count, pair) for count, pair in zip(counts, self.blocks, strict=True) if count > 0]
        root = _root_share(self.root, at_root, self.trace, layout, self.split)
        return RankUnits(
            dense=(*(replace(dense, count=count) for count, (dense, _) in held), root),
            experts=tuple(
                replace(experts, count=count) for count, (_, experts) in held if experts is not None
            ),
            expert_tensor=self.split.expert_tensor,
        )

    def _blocks_by_stage(self, layout: Layout) -> list[list[int]]:
        """Return how many blocks of each group a stage holds."""
        trace = self.trace
        stages = stage_of_instances(trace, layout)
        runs = stage_counts(trace, stages, layout.pipeline)
        names = [dense.name for dense, _ in self.blocks]
        columns = [
            [i for i, s in enumerate(trace.segments) if s.phase == "forward" and s.block == name]
            for name in names
        ]
        return np.stack([runs[:, one].sum(axis=1) for one in columns], axis=1).astype(int).tolist()


def split_units(
    profile: Profile, units: Sequence[Unit], trace: StepTrace, split: Split
) -> SplitUnits:
    """Return what ranks of one split hold, whatever the pipeline (arguments: `rank_units`)."""
    styles = parallel_styles(trace, splits_head=split.splits_vocabulary)
    groups = {group.name: group for group in profile.blocks}
    blocks = []
    # Beside tensor and pipeline ranks torch's replicas are `fully_shard`'s: no zeros are sent.
    units = [replace(unit, unused=0) if unit.unused else unit for unit in units]
    for unit in units[:-1]:
        weights = _expert_weights(trace, unit.name)
        dense = _dense_share(unit, groups[unit.name or ""], styles, split, weights)
        held = weights / (split.expert * split.expert_tensor)
        experts = _scaled(unit, held / unit.parameters) if weights else None
        blocks.append((dense, experts))
    root = units[-1]
    ends = _root_parameters(trace, split, root)
    return SplitUnits(trace=trace, split=split, blocks=tuple(blocks), root=root, ends=ends)


def _dense_share(
    unit: Unit,
    group: BlockGroup,
    styles: dict[str | None, ParallelStyles],
    split: Split,
    experts: float,
) -> Unit:
    """Return a block's unit with its split layers divided and its experts left out."""
    if split.tensor == 1 and not experts:
        return unit
    share_of = _shares_by_name(styles.get(unit.name), group, split.tensor)
    tensors = None if experts else _split_tensors(unit.tensors, group, share_of)
    if tensors is not None:
        return of_tensors(unit, tensors)
    dropped = sum(
        linear.in_features * linear.out_features * (1 - share_of[linear.name][1])
        for linear in group.linears
        if linear.name in share_of
    )
    return _scaled(unit, (unit.parameters - experts - dropped) / unit.parameters)


def of_tensors(unit: Unit, tensors: tuple[ParameterTensor, ...]) -> Unit:
    """Return a unit that holds these parameters instead."""
    sizes = [(t.rows * t.row_elements, t.trainable) for t in tensors]
    return replace(
        unit,
        parameters=sum(size for size, _ in sizes),
        trainable=sum(size for size, trained in sizes if trained),
        tensors=tensors,
    )


def _shares_by_name(
    styles: ParallelStyles | None, group: BlockGroup, tensor: int
) -> dict[str, tuple[str, float]]:
    """Return style and rank's share of a block's split layers by their names inside the block."""
    found: dict[str, tuple[str, float]] = {}
    for linear in group.linears:
        for module, style in (styles.style if styles else {}).items():
            if styles and style != "whole" and module.endswith(f".{linear.name}"):
                found[linear.name] = (style, styles.share(module, tensor))
    return found


def _split_tensors(
    tensors: tuple[ParameterTensor, ...], group: BlockGroup, share_of: dict[str, tuple[str, float]]
) -> tuple[ParameterTensor, ...] | None:
    """Return the tensors as a tensor rank holds them; None where one cannot be told from another.

    Parameters and layers stand in the same order, a layer's weight before its bias. A column
    layer's bias is divided like its rows; a row layer's is whole on every rank.
    """
    split: list[ParameterTensor] = []
    linears = list(group.linears)
    bias_share: float | None = None
    for tensor in tensors:
        shape = (tensor.rows, tensor.row_elements)
        changed: dict[str, int] = {}
        if bias_share is not None:
            changed, bias_share = {"rows": round(tensor.rows * bias_share)}, None
        elif linears and shape == (linears[0].out_features, linears[0].in_features):
            linear = linears.pop(0)
            style, share = share_of.get(linear.name, ("whole", 1.0))
            if style == "column":
                changed = {"rows": round(tensor.rows * share)}
            elif style == "row":
                changed = {"row_elements": round(tensor.row_elements * share)}
            if linear.parameters > linear.out_features * linear.in_features:
                bias_share = share if style == "column" else 1.0
        split.append(tensor.model_copy(update=changed) if changed else tensor)
    return None if linears or not tensors else tuple(split)


def _expert_weights(trace: StepTrace, block: str | None) -> float:
    """Return the parameters of all experts of one block."""
    for segment in trace.segments:
        if segment.phase == "forward" and segment.block == block:
            return sum(_weights(k) for k in segment.kernels if is_expert_product(k))
    return 0.0


def _weights(kernel: Kernel) -> float:
    dims = kernel.dims
    return dims["batch"].base * dims["n"].base * dims["k"].base


def _root_share(
    root: Unit, parameters: float, trace: StepTrace, layout: Layout, split: Split
) -> Unit:
    """Return the root's unit with the parameters that a rank of a stage holds of it."""
    if layout.pipeline == 1 and split.tensor > 1 and split.splits_vocabulary and root.tensors:
        divided = _vocabulary_sizes(trace)
        return of_tensors(
            root,
            tuple(
                tensor.model_copy(update={"rows": -(-tensor.rows // split.tensor)})
                if tensor.rows * tensor.row_elements in divided
                else tensor
                for tensor in root.tensors
            ),
        )
    share = min(1.0, parameters / root.parameters) if root.parameters else 1.0
    return root if share == 1 else _scaled(root, share)


def _vocabulary_sizes(trace: StepTrace) -> set[float]:
    """Return elements of the largest embedding and of the last linear layer of the root."""
    tables, head = [0.0], 0.0
    for segment in trace.segments:
        if segment.phase != "forward" or segment.block is not None:
            continue
        for kernel in segment.kernels:
            if kernel.kind == "embedding" and kernel.module and "elements" in kernel.dims:
                tables.append(kernel.dims["elements"].base)
            elif is_dense_linear(kernel):
                head = _weights(kernel)
    return {max(tables), head} - {0.0}


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
