"""What torch's `fully_shard` sends and holds on a rank: closed forms, equal to traces of it.

Every block is a unit and the root is one with the rest. Each parameter is padded to a multiple of
the sharding ranks along its rows:

    P(unit) = sum of ceil(rows / shard) · shard · elements per row

A unit's parameters are gathered before its forward and, the root's excepted, again before its
backward, where the next unit is prefetched; its gradients are reduce-scattered after it.
Source: torch 2.13 torch/distributed/fsdp/_fully_shard, checked in
tests/planner/parallelism/test_fsdp.py against traces of it
(tests/planner/parallelism/fsdp_golden/README.md defines every buffer).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple, Protocol

from ...catalog.vocabulary import Collective
from ...profiles.profile import ParameterTensor, Profile
from ..plan.layout import Layout

REDUCE_BYTES = 4
"""With mixed precision gradients are widened to fp32 while they are copied into the
reduce-scatter's input; without they are reduced in the parameters' dtype."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Unit:
    """One FSDP unit: a block group's blocks are equal units, the root is a unit of its own.

    Compared by identity, so that it is a cheap key of caches.
    """

    name: str | None
    """Block group; None is the root."""
    count: int
    parameters: int
    trainable: int
    """Parameters that get a gradient: FSDP reduces no other (`FSDPParamGroup.post_backward` takes
    those whose `unsharded_param.grad` is not None)."""
    tensors: tuple[ParameterTensor, ...]
    trainable_tensors: int = 0
    """Tensors that are trained; 0 in a Profile that does not name them."""
    unused: int = 0
    """Parameters that require a gradient and get none."""

    def padded(self, shard: int, *, trainable: bool = False) -> int:
        """Return elements of the unit with every parameter padded to `shard` ranks.

        Without the parameters' shapes (a Profile from elsewhere) the unit is padded as a whole.
        """
        return _padded(self, shard, trainable)


@lru_cache(maxsize=4096)
def _padded(unit: Unit, shard: int, trainable: bool) -> int:
    # A search asks for the same few hundred of these tens of thousands of times.
    if not unit.tensors:
        total = unit.trainable if trainable else unit.parameters
        return -(-total // shard) * shard
    return padded_elements((t for t in unit.tensors if t.trainable or not trainable), shard)


def padded_elements(tensors: Iterable[ParameterTensor], shard: int) -> int:
    """Return elements of these parameters, each padded to a multiple of `shard` rows."""
    return sum(-(-t.rows // shard) * shard * t.row_elements for t in tensors)


def units_of(profile: Profile) -> tuple[Unit, ...]:
    """Return the units of a model, the root last."""
    blocks = tuple(
        Unit(
            name=group.name,
            count=group.count,
            parameters=group.parameters,
            trainable=group.trained_parameters,
            unused=group.unused_parameters,
            tensors=group.tensors,
            trainable_tensors=_trained(group.tensors),
        )
        for group in profile.blocks
    )
    root = Unit(
        name=None,
        count=1,
        parameters=profile.parameters - sum(u.count * u.parameters for u in blocks),
        trainable=profile.trained_parameters - sum(u.count * u.trainable for u in blocks),
        unused=profile.unused_parameters - sum(u.count * u.unused for u in blocks),
        tensors=profile.root_tensors,
        trainable_tensors=_trained(profile.root_tensors),
    )
    return (*blocks, root)


def gathered_parameters(profile: Profile, layout: Layout) -> int | None:
    """Return how many parameters a rank has gathered at most; None where none are (ZeRO 0 to 2).

    The root, which stays, the block that runs, and the one that is gathered meanwhile.
    """
    if layout.zero_stage < 3 or layout.shard < 2:
        return None
    *blocks, root = units_of(profile)
    largest = max((block.padded(layout.shard) for block in blocks), default=0)
    return (root.padded(layout.shard) + 2 * largest) // layout.tensor


def _trained(tensors: Sequence[ParameterTensor]) -> int:
    return sum(tensor.trainable for tensor in tensors)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One collective: its whole buffer is `total_bytes`."""

    phase: str
    kind: Collective
    unit: str | None
    total_bytes: float


def collective_calls(
    units: Sequence[Unit],
    *,
    shard: int,
    replicas: int,
    gather_bytes: float,
    reduce_bytes: float = REDUCE_BYTES,
) -> list[Call]:
    """Return the collectives of one micro-batch in the order a rank issues them.

    Args:
        units: as `units_of` returns them, blocks in order of execution, the root last.
        shard: ranks that share one copy of the parameters.
        replicas: copies; with more than one each reduce-scatter is followed by an all-reduce of
            the shard.
        gather_bytes: bytes per gathered parameter.
        reduce_bytes: bytes per gradient that is reduced.
    """
    root = units[-1]
    blocks = [unit for unit in units[:-1] for _ in range(unit.count)]

    @cache
    def gather(phase: str, unit: Unit) -> Call:
        size = unit.padded(shard) * gather_bytes
        return Call(phase=phase, kind="all_gather", unit=unit.name, total_bytes=size)

    @cache
    def reduce(unit: Unit) -> tuple[Call, ...]:
        size = unit.padded(shard, trainable=True) * reduce_bytes
        if not size:
            return ()
        name = unit.name
        scatter = Call(phase="backward", kind="reduce_scatter", unit=name, total_bytes=size)
        if replicas == 1:
            return (scatter,)
        shared = Call(phase="backward", kind="all_reduce", unit=name, total_bytes=size // shard)
        return scatter, shared

    calls = [gather("forward", unit) for unit in (root, *blocks)]
    backwards = blocks[::-1]
    for i, unit in enumerate(backwards):
        # The first block gathers for itself; each block prefetches the one after it.
        if i == 0:
            calls.append(gather("backward", unit))
        if i + 1 < len(backwards):
            calls.append(gather("backward", backwards[i + 1]))
        calls += reduce(unit)
    return [*calls, *reduce(root)]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Where in the step we look at the sharding buffers."""

    phase: str
    unit: str | None
    previous: str | None
    """The block that ran before in this pass; None at the start."""
    following: str | None
    """The block that runs after in this pass; None at the end."""
    final: bool = False
    """After the last block's backward: only the root's gradients are left."""

    @property
    def has_reduced(self) -> bool:
        """Whether the root's sharded gradients are there: in the optimizer's step, and at the end.

        In a model of nothing but the root they come to be once its whole ones are freed.
        """
        return self.phase == "optimizer" or (self.final and self.previous is not None)


class Sized(Protocol):
    """What is asked of a unit; arrays where many shardings are looked at together."""

    def padded(self, shard: int, *, trainable: bool = False) -> Any:
        """Return elements with every parameter padded to `shard` ranks."""

    @property
    def trainable(self) -> Any:
        """Trainable parameters."""


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """How units lie on the ranks, and what they are gathered in."""

    units: Mapping[str | None, Sized]
    """The units by name; None names the root."""
    shard: int
    """Ranks that share one copy."""
    gather_bytes: int
    """Per gathered parameter, and per unsharded gradient."""


class Made(NamedTuple):
    """Parts of the gradients that are complete at a moment; a tuple, for it is a key of many."""

    root: Any
    """Fraction of the root's gradients that is complete before the blocks' backward: the head's,
    when it is not tied."""
    block: Any = 1.0
    """Fraction that is complete of the gradients of the block in backward."""


def buffer_bytes(
    moment: Moment,
    sharding: Sharding,
    made: Made,
    *,
    keeps_blocks: bool = False,
    reduce_bytes: Any = REDUCE_BYTES,
) -> Any:
    """Return bytes that sharding adds to a rank at a moment: gathered parameters and gradients.

    Args:
        moment: where in the step.
        sharding: the units.
        made: which gradients there are.
        keeps_blocks: blocks keep their parameters from forward to backward; those are not counted
            here, whatever the moment.
        reduce_bytes: bytes per gradient that is reduced.
    """
    w, units = sharding.gather_bytes, sharding.units
    if moment.phase == "optimizer":
        return 0.0

    def whole(name: str | None) -> int:
        return units[name].padded(sharding.shard)

    def trained(name: str | None) -> int:
        # The reduce-scatter's input is padded; the gradients it is copied from are not.
        return units[name].padded(sharding.shard, trainable=True)

    root = whole(None)
    if moment.phase == "forward":
        if moment.unit is None:
            # Before the blocks the flat buffer and its split copy exist side by side.
            flat = root if moment.previous is None else whole(moment.previous)
            return w * (root + flat)
        flat = root if moment.previous is None else whole(moment.previous)
        return w * (root + (1 if keeps_blocks else 2) * whole(moment.unit) + flat)
    if moment.final:
        # What ZeRO-2 gathered it keeps for the next micro-batch, whether or not there is one.
        kept = w * root if keeps_blocks else 0
        return kept + w * units[None].trainable + reduce_bytes * trained(None)
    held = w * (root + made.root * units[None].trainable)
    if moment.unit is None:
        return held
    held += w * made.block * units[moment.unit].trainable
    if not keeps_blocks:
        held += w * whole(moment.unit)
    if moment.following is not None and not keeps_blocks:
        held += w * whole(moment.following)
    if moment.previous is not None:
        held += reduce_bytes * trained(moment.previous)
    return held
