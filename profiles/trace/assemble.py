"""From a step recorded at two micro-batch sizes or more to its segments, schedule and memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..profile import KERNEL_KINDS, Affine, Kernel, MemoryStream, Numerics, Segment, StepTrace
from .kernels.count import count, kind_of
from .kernels.kernel_numbers import Counts, affine, law, make_kernel
from .kernels.operations import Call, op_name
from .model.building import Built
from .recorded import RecordedStep
from .recording import storages as rec
from .recording.execution import BlockExecution
from .recording.recorder import Recorder


@dataclass
class PairedRuns:
    """The same step at a small and at a large micro-batch.

    The large one has an optimizer step only where that depends on the batch, and so have larger
    ones, of a model that compares samples with each other.
    """

    numerics: Numerics
    built: Built
    small: RecordedStep
    large: RecordedStep
    larger: tuple[RecordedStep, ...] = ()

    @property
    def steps(self) -> tuple[RecordedStep, ...]:
        """Return the steps from the smallest to the largest."""
        return self.small, self.large, *self.larger

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return their micro-batch sizes."""
        return tuple(step.size for step in self.steps)

    @property
    def optimizers_grow(self) -> bool:
        """Whether the large one has an optimizer step too, that of sparse gradients."""
        return bool(self.built.kinds.sparse)

    def difference(self) -> str:
        """Return the first difference in words, or an empty string."""
        return next(filter(None, map(self._difference_of, self.steps[1:])), "")

    def _difference_of(self, other_step: RecordedStep) -> str:
        small = _before_optimizer(self.small)
        large = _before_optimizer(other_step)
        for one, other in zip(small, large, strict=False):
            here, there = (one.phase, one.run), (other.phase, other.run)
            first = [call.func for call, _, _ in one.calls]
            second = [call.func for call, _, _ in other.calls]
            if here == there and first == second:
                continue
            names, others = [*map(op_name, first)], [*map(op_name, second)]
            if here != there or names != others:
                return _first_difference(names, others)
        if len(small) != len(large):
            return f"{len(small)} parts at one size, {len(large)} at the other"
        return self._row_difference(other_step)

    def _row_difference(self, other_step: RecordedStep) -> str:
        ends = self.small.optimizer_tick, other_step.optimizer_tick
        rows = self.small.recorder.rows, other_step.recorder.rows
        sides = [
            [
                (birth, min(death, end), producer)
                for birth, death, producer in zip(
                    each.birth, each.death, each.producer, strict=True
                )
                if birth < end
            ]
            for each, end in zip(rows, ends, strict=True)
        ]
        if sides[0] == sides[1]:
            return ""
        for (birth, _, producer), other in zip(*sides, strict=False):
            if (birth, producer) != (other[0], other[2]):
                return (
                    f"{producer or 'a tensor'} at one size, {other[2] or 'a tensor'} at the other"
                )
        return "tensors that live longer at one size"


def assemble_step(runs: PairedRuns) -> StepTrace:
    """Return the StepTrace of a step recorded at two sizes."""
    segments, schedule = _Segments(runs).build()
    small = runs.small.recorder
    forward_of = _first_forward(small)
    return StepTrace(
        numerics=runs.numerics,
        recompute="none",
        segments=segments,
        schedule=schedule,
        start_tick=[instance.start_tick for instance in small.instances],
        forward_of=[forward_of.get(instance.run, -1) for instance in small.instances],
        rerun_end_tick=[
            small.uses.rerun_end.get(instance.run, instance.start_tick)
            for instance in small.instances
        ],
        release_tick=[small.uses.release.get(instance.run, -1) for instance in small.instances],
        memory=_memory(runs),
    )


def _first_forward(recorder: Recorder) -> dict[int, int]:
    """Return the index of the first forward instance of every block execution."""
    return {
        instance.run: index
        for index, instance in reversed(list(enumerate(recorder.instances)))
        if instance.phase == "forward" and instance.run != rec.ROOT
    }


class _Segments:
    """Stores equal segments once. Kernels are compared by their calls at both sizes."""

    def __init__(self, runs: PairedRuns) -> None:
        self.runs = runs
        self._counts: dict[Call, Counts] = {}
        self._kernels: dict[tuple[Any, ...], Kernel] = {}
        self._number_of: dict[tuple[Any, ...], int] = {}
        self._number_of_object: dict[int, int] = {}
        """By the identity of a call: most equal ones are one object, and slow to look up."""
        self._paths: dict[tuple[str, int | None], str] = {}
        self._group_of: list[tuple[str, str, str]] = [
            (run.name, run.paths[0], path) for run in runs.built.blocks for path in run.paths
        ]

    def build(self) -> tuple[tuple[Segment, ...], list[int]]:
        segments: dict[tuple[Any, ...], int] = {}
        made: list[Segment] = []
        schedule: list[int] = []
        for same in self._same():
            small = same[0]
            keys = tuple(self._keys(same))
            group = None if small.block is None else self._group_of[small.block][0]
            offsets = tuple(tick - small.start_tick for tick in small.ticks)
            key = (small.phase, group, keys, offsets)
            if key not in segments:
                segments[key] = len(made)
                made.append(
                    Segment(
                        name=f"{group or 'root'} {small.phase}",
                        phase=small.phase,
                        block=group,
                        kernels=tuple(self._kernels[each] for each in keys),
                        offsets=offsets,
                    )
                )
            schedule.append(segments[key])
        return tuple(made), schedule

    def _same(self) -> Iterator[tuple[BlockExecution, ...]]:
        """Yield each instance as it is at every size."""
        for at, small in enumerate(self.runs.small.recorder.instances):
            grows = small.phase != "optimizer" or self.runs.optimizers_grow
            yield tuple(step.recorder.instances[at] if grows else small for step in self.runs.steps)

    def _keys(self, same: tuple[BlockExecution, ...]) -> Iterator[tuple[Any, ...]]:
        small = same[0]
        calls = zip(*(instance.calls for instance in same), strict=True)
        for one, rerun in zip(calls, small.reruns, strict=True):
            _, path, weighs = one[0]
            place = path, small.block
            module = self._paths.get(place)
            if module is None:
                module = self._paths[place] = self._in_first(path, small.block)
            key = (*(self._number(call) for call, _, _ in one), module, weighs, rerun)
            if key not in self._kernels:
                numbers = affine([self._count(call) for call, _, _ in one], self.runs.sizes)
                if small.phase == "optimizer" and numbers["kind"] != "gemm":
                    numbers["kind"] = "optimizer"
                self._kernels[key] = make_kernel(numbers, module=module, linear=weighs, rerun=rerun)
            yield key

    def _number(self, call: Call) -> int:
        number = self._number_of_object.get(id(call))
        if number is None:
            number = self._number_of.setdefault(call, len(self._number_of))
            self._number_of_object[id(call)] = number
        return number

    def _count(self, call: Call) -> Counts:
        if call not in self._counts:
            self._counts[call] = count(call)
        return self._counts[call]

    def _in_first(self, path: str, block: int | None) -> str:
        """Return a module path as it is in the first repetition of its block."""
        if block is None:
            return path
        _, first, own = self._group_of[block]
        return first + path[len(own) :] if path.startswith(own) else path


def _memory(runs: PairedRuns) -> MemoryStream:
    recorder = runs.small.recorder
    rows = recorder.rows
    # One past the last operation: what the end of the step frees is dead before it.
    end_tick = recorder.tick + 1
    deaths = [min(death, end_tick) for death in rows.death]
    forward_of = _first_forward(recorder)
    sizes = _sizes_of_storages(runs)
    return MemoryStream(
        birth_tick=rows.birth,
        death_tick=deaths,
        bytes_base=[round(each.base) for each in sizes],
        bytes_per_sample=[round(each.per_sample) for each in sizes],
        category=[
            _category(category, birth, death, runs.small.forward_end_tick)
            for category, birth, death in zip(rows.category, rows.birth, deaths, strict=True)
        ],
        instance=rows.instance,
        end_tick=end_tick,
        producer=[KERNEL_KINDS.index(kind_of(p)) if p else -1 for p in rows.producer],
        entered=[-1 if run == rec.ROOT else forward_of.get(run, -1) for run in rows.entered],
        outside_tick=rows.outside,
        inside_tick=rows.inside,
        kept=[int(kept) for kept in rows.kept],
        bytes_per_pair=_column([size.per_pair for size in sizes]),
        bytes_per_triple=_column([size.per_triple for size in sizes]),
    )


def _sizes_of_storages(runs: PairedRuns) -> list[Affine]:
    rows = runs.small.recorder.rows
    measured = [step.recorder.rows.bytes for step in runs.steps]
    return [
        law([each[row] for each in measured], runs.sizes)
        if rows.birth[row] < runs.small.optimizer_tick or runs.optimizers_grow
        else Affine(size)
        for row, size in enumerate(rows.bytes)
    ]


def _column(values: list[float]) -> list[int]:
    """Return a column that is empty where no storage needs it."""
    return [round(value) for value in values] if any(values) else []


def _category(noted: int, birth: int, death: int, forward_end_tick: int) -> int:
    """Return activations for what is born in the forward pass and needed after it."""
    if noted != rec.TEMPORARY or birth < 0:
        return noted
    return rec.ACTIVATIONS if birth < forward_end_tick < death else rec.TEMPORARY


def _before_optimizer(step: RecordedStep) -> list[BlockExecution]:
    return [each for each in step.recorder.instances if each.phase != "optimizer"]


def _first_difference(first: list[str], second: list[str]) -> str:
    for one, other in zip(first, second, strict=False):
        if one != other:
            return f"{one} at one size, {other} at the other"
    return f"{len(first)} operations at one size, {len(second)} at the other"
