"""What the model file itself recomputes (torch.utils.checkpoint), and the model without that.

The trace of such a file holds what runs again as segments of their own before the backward pass of
their block. Each storage that they make was made before, in the forward pass, and let go of:
without the checkpoint it lives from there until the backward pass has used it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ....catalog.text.quantity import format_part
from ....profiles.profile import CATEGORIES, MemoryStream, Profile, Segment, StepTrace
from .inner_reruns import flops_of_inner_reruns

ACTIVATIONS = CATEGORIES.index("activations")


@dataclass(frozen=True, kw_only=True)
class OwnRecompute:
    """How much of a model its file computes again in the backward pass."""

    again: int
    """Executions of blocks that run again, in whole or in part."""
    blocks: int
    """Executions of blocks."""
    flops_share: float
    """Of the FLOPs of a step, those of what runs again; of one sample."""

    @property
    def is_everywhere(self) -> bool:
        """Whether every block runs again."""
        return self.again >= self.blocks

    def __str__(self) -> str:
        """Return it in words: "24 of 24 blocks, in the file"."""
        return f"{self.again:,} of {self.blocks:,} blocks, in the file"


def own_recompute(profile: Profile) -> OwnRecompute | None:
    """Return what the file itself recomputes of its blocks; None where it recomputes nothing."""
    step = profile.steps[0]
    phases = [step.segments[number].phase for number in step.schedule]
    again = {step.forward_of[i] for i, phase in enumerate(phases) if phase == "recompute"}
    inside = flops_of_inner_reruns(step)
    again |= {step.forward_of[i] for i in inside}
    if not again:
        return None
    run = [step.segments[number] for number in step.schedule]
    flops = [sum(kernel.flops.at(1) for kernel in segment.kernels) for segment in run]
    reruns = sum(one for one, phase in zip(flops, phases, strict=True) if phase == "recompute")
    reruns += sum(inside.values())
    blocks = sum(one.block is not None and one.phase == "forward" for one in run)
    return OwnRecompute(again=len(again), blocks=blocks, flops_share=reruns / (sum(flops) or 1))


def own_recompute_notes(profile: Profile) -> Iterator[str]:
    """Yield what the file itself recomputes, where what that saves cannot be told."""
    own = own_recompute(profile)
    if own is not None and without_own_recompute(profile) is None:
        yield (
            f"the file itself recomputes ({own.again:,} of {own.blocks:,} blocks,"
            f" {format_part(own.flops_share)} of the step's FLOPs): what it takes without that is"
            " not known from its trace; take the checkpoint out of the file, and ask again"
        )


def without_own_recompute(profile: Profile) -> Profile | None:
    """Return the profile as it would be without the checkpoints of its file.

    None where what they keep cannot be told from the trace: where what runs again is not a part of
    the forward pass as it ran first, as under a policy that keeps some products; and where it runs
    inside of a block's backward pass.
    """
    if own_recompute(profile) is None:
        return profile
    if any(flops_of_inner_reruns(step) for step in profile.steps):
        return None
    steps = [_without(step) for step in profile.steps]
    if any(step is None for step in steps):
        return None
    return profile.model_copy(update={"steps": tuple(step for step in steps if step is not None)})


@dataclass(frozen=True)
class _Rerun:
    """A part of the forward pass that runs again, in ticks of the trace."""

    instance: int
    forward: int
    """Index of the forward instance of which it is a part."""
    start: int
    end: int
    until: int
    """When the last of the reruns ends that run one after another: what dies by then is not for the
    backward pass."""
    shift: int
    """How many ticks into the forward instance it begins."""


def _without(step: StepTrace) -> StepTrace | None:
    reruns = list(_reruns(step))
    if any(rerun is None for rerun in reruns):
        return None
    removed = _Removed(step, [one for one in reruns if one is not None])
    memory = _memory(step, removed)
    if memory is None:
        return None
    kept = removed.kept
    return step.model_copy(
        update={
            "segments": removed.segments,
            "schedule": removed.schedule,
            "start_tick": [removed.tick(step.start_tick[old]) for old in kept],
            "forward_of": [removed.index(step.forward_of[old]) for old in kept],
            "rerun_end_tick": [removed.rerun_end(old) for old in kept],
            "release_tick": [removed.tick(step.release_tick[old]) for old in kept],
            "memory": memory,
        }
    )


def _reruns(step: StepTrace) -> Iterator[_Rerun | None]:
    """Yield what runs again, in order; None where the forward pass did not run the same."""
    segments = [step.segments[number] for number in step.schedule]
    starts = [*step.start_tick, step.memory.end_tick]
    shifts: dict[tuple[int, int], int | None] = {}
    for index, segment in enumerate(segments):
        if segment.phase != "recompute":
            continue
        forward = step.forward_of[index]
        if forward < 0:
            yield None
            continue
        key = step.schedule[forward], step.schedule[index]
        if key not in shifts:
            shifts[key] = _shift(segments[forward], segment)
        shift, last = shifts[key], index
        while last + 1 < len(segments) and segments[last + 1].phase == "recompute":
            last += 1
        ends = starts[index + 1], starts[last + 1]
        yield None if shift is None else _Rerun(index, forward, starts[index], *ends, shift)


def _shift(forward: Segment, again: Segment) -> int | None:
    """Return how many ticks into a forward instance its rerun begins; None where that is not told.

    The kernels must be the same at the same distances, in one place alone.
    """
    if not again.kernels:
        return 0
    count = len(again.kernels)
    names = [(kernel.op, kernel.module) for kernel in forward.kernels]
    wanted = [(kernel.op, kernel.module) for kernel in again.kernels]
    found = [
        forward.offsets[at] - again.offsets[0]
        for at in range(len(names) - count + 1)
        if names[at : at + count] == wanted
        and all(
            there - here == forward.offsets[at] - again.offsets[0]
            for there, here in zip(forward.offsets[at : at + count], again.offsets, strict=True)
        )
    ]
    return found[0] if len(found) == 1 and found[0] >= 0 else None


class _Removed:
    """A step without its reruns: which instances are left, and what their ticks become."""

    def __init__(self, step: StepTrace, reruns: Sequence[_Rerun]) -> None:
        self.step = step
        self.reruns = reruns
        self._starts = [rerun.start for rerun in reruns]
        self._sums = [0]
        for rerun in reruns:
            self._sums.append(self._sums[-1] + rerun.end - rerun.start)
        self._segments = list(step.segments)
        self._merged: dict[tuple[int, int, int], int] = {}
        self.schedule: list[int] = []
        self.kept: list[int] = []
        """Old index of each new instance."""
        self._new: list[int] = []
        """New index of each old instance."""
        self._join()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, those that are joined at the end."""
        return tuple(self._segments)

    @cached_property
    def _end_of(self) -> dict[int, int]:
        """By forward instance: the tick by which all that its reruns saved is made."""
        ends: dict[int, int] = {}
        for one in self.reruns:
            end = self.step.start_tick[one.forward] + one.shift + one.end - one.start
            whole = not one.shift
            old = 0 if whole else self.step.rerun_end_tick[one.forward]
            ends[one.forward] = max(ends.get(one.forward, old), end)
        return ends

    def tick(self, tick: int) -> int:
        """Return what an old tick becomes; -1 stays."""
        at = bisect_right(self._starts, tick) - 1
        if at < 0:
            return tick
        rerun = self.reruns[at]
        return tick - self._sums[at] - min(tick, rerun.end) + rerun.start

    def index(self, instance: int) -> int:
        """Return what the index of an instance that is left becomes; -1 stays."""
        return -1 if instance < 0 else self._new[instance]

    def rerun_end(self, instance: int) -> int:
        """Return when a rerun of an instance that is left may stop, in new ticks."""
        return self._end_of.get(instance, self.tick(self.step.rerun_end_tick[instance]))

    def _join(self) -> None:
        """Leave the reruns out, and make one of the two parts of a pass that one divided."""
        step, divided = self.step, False
        for old, number in enumerate(step.schedule):
            segment = step.segments[number]
            if segment.phase == "recompute":
                divided = True
                self._new.append(-1)
                continue
            last = self.kept[-1] if self.kept else -1
            if divided and last >= 0 and _is_one(step, last, old):
                gap = self.tick(step.start_tick[old]) - self.tick(step.start_tick[last])
                self.schedule[-1] = self._joined(self.schedule[-1], number, gap)
            else:
                self.schedule.append(number)
                self.kept.append(old)
            self._new.append(len(self.kept) - 1)
            divided = False

    def _joined(self, first: int, second: int, gap: int) -> int:
        key = first, second, gap
        if key not in self._merged:
            one, other = self._segments[first], self._segments[second]
            self._merged[key] = len(self._segments)
            self._segments.append(
                one.model_copy(
                    update={
                        "kernels": one.kernels + other.kernels,
                        "offsets": (*one.offsets, *(gap + tick for tick in other.offsets)),
                    }
                )
            )
        return self._merged[key]


def _is_one(step: StepTrace, first: int, second: int) -> bool:
    """Return whether two instances are parts of the backward pass of one block."""
    passes = [step.segments[step.schedule[one]].phase for one in (first, second)]
    same = step.forward_of[first] == step.forward_of[second] >= 0
    return same and passes == ["backward", "backward"]


def _memory(step: StepTrace, removed: _Removed) -> MemoryStream | None:
    """Return the storages, each made once; None where one that is kept was not made before."""
    memory = step.memory
    columns = {name: list(values) for name, values in memory if isinstance(values, list) and values}
    again = set[int]()
    of_instance: dict[int, list[int]] = defaultdict(list)
    for row, instance in enumerate(memory.instance):
        of_instance[instance].append(row)
    for rerun in removed.reruns:
        rows = of_instance[rerun.instance]
        again.update(rows)
        first_at: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for row in of_instance[rerun.forward]:
            first_at[_kind(memory, row, step.start_tick[rerun.forward])].append(row)
        for row in rows:
            same = first_at[_kind(memory, row, rerun.start - rerun.shift)]
            first = same.pop(0) if same else None
            if memory.death_tick[row] <= rerun.until:
                continue
            if first is None:
                return None
            _live_on(columns, first, row)
    return _moved(memory, columns, again, removed)


def _kind(memory: MemoryStream, row: int, start: int) -> tuple[int, ...]:
    """Return what a storage has in common with its second life: when it is made, and its size."""
    sizes = (column[row] for column in memory.growth)
    return memory.birth_tick[row] - start, memory.producer[row], *sizes


def _live_on(columns: dict[str, list[int]], first: int, second: int) -> None:
    """Let a storage live until its second life ended, for the backward pass."""
    death = columns["death_tick"][second]
    columns["death_tick"][first] = max(columns["death_tick"][first], death)
    columns["inside_tick"][first] = max(columns["inside_tick"][first], death - 1)
    columns["category"][first] = ACTIVATIONS


def _moved(
    memory: MemoryStream, columns: dict[str, list[int]], again: set[int], removed: _Removed
) -> MemoryStream:
    """Return the rows that are left, in ticks and instances of the shorter step."""
    left = [row for row in range(len(memory.birth_tick)) if row not in again]
    moved = {name: [values[row] for row in left] for name, values in columns.items()}
    for name in ("birth_tick", "death_tick", "outside_tick", "inside_tick"):
        moved[name] = [removed.tick(tick) for tick in moved[name]]
    for name in ("instance", "entered"):
        moved[name] = [removed.index(one) for one in moved[name]]
    return MemoryStream(**moved, end_tick=removed.tick(memory.end_tick))
