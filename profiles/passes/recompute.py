"""A step with activation recompute, derived from the step without by the rules of torch.

Rules (torch.utils.checkpoint, use_reentrant=False, around every repeated block):

- The forward pass of a block keeps only what enters it and what others still need; the rest that it
  had saved is gone when it ends. 16-bit copies of weights stay in autocast's cache until the
  forward pass of the model ends.
- Before its backward pass the block runs again, up to the operation that makes the last saved
  tensor (early stop). What it saves then lives as long as it did before.
- Selective: the outputs of matrix products, attention, convolutions and RNNs are kept from the
  first run and not computed again (`create_selective_checkpoint_contexts`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...catalog.vocabulary import Recompute
from ..profile import (
    CATEGORIES,
    KERNEL_KINDS,
    KernelKind,
    MemoryStream,
    Profile,
    Segment,
    StepTrace,
)

Array = np.ndarray

KEPT_KINDS: frozenset[KernelKind] = frozenset(("gemm", "attention", "convolution", "rnn"))
_KEPT_NUMBERS = [KERNEL_KINDS.index(kind) for kind in sorted(KEPT_KINDS)]
_ACTIVATIONS, _TEMPORARY = CATEGORIES.index("activations"), CATEGORIES.index("temporary")


def recomputed(
    step: StepTrace, profile: Profile, recompute: Recompute, *, early_stop: bool = True
) -> StepTrace:
    """Return the step as it would run with this recompute of the profile's repeated blocks.

    Args:
        step: the step without recompute.
        profile: of which it is a trace.
        recompute: what is computed again.
        early_stop: whether a block runs again only up to its last saved tensor (torch, and XLA's
            removal of dead code), or to its end (Megatron's own checkpoint function).
    """
    if recompute == "none" or not profile.blocks:
        return step.model_copy(update={"recompute": recompute})
    reruns = _reruns(step, early_stop)
    shift = _Shift(step, reruns)
    segments, schedule, start_tick, origin = _schedule(step, reruns, shift, recompute)
    return step.model_copy(
        update={
            "recompute": recompute,
            "segments": tuple(segments),
            "schedule": schedule,
            "start_tick": start_tick,
            "forward_of": [_renumber(step.forward_of[old], origin) for old in origin],
            "rerun_end_tick": [step.rerun_end_tick[old] for old in origin],
            "release_tick": [step.release_tick[old] for old in origin],
            "memory": _Memory(step, reruns, shift, recompute, origin).build(),
        }
    )


@dataclass(frozen=True)
class _Rerun:
    """One block execution that runs again before its backward pass."""

    forward: int
    """Index of its forward instance."""
    before: int
    """Index of the backward instance that it runs before."""
    start_tick: int
    """Tick at which the forward instance starts."""
    forward_end_tick: int
    ticks: int
    """Operations that run again."""
    insert_tick: int
    """Old tick before which they run."""
    release_tick: int


def _reruns(step: StepTrace, early_stop: bool) -> list[_Rerun]:
    """Return the block executions to run again, in the order of the backward pass."""
    done = {
        step.forward_of[index]
        for index, number in enumerate(step.schedule)
        if step.segments[number].phase == "recompute"
    }
    reruns: list[_Rerun] = []
    for index, number in enumerate(step.schedule):
        forward = step.forward_of[index]
        if step.segments[number].phase != "backward" or forward < 0 or forward in done:
            continue
        done.add(forward)
        start = step.start_tick[forward]
        end = step.start_tick[forward + 1] if forward + 1 < len(step.start_tick) else start
        stop = min(step.rerun_end_tick[forward], end) if early_stop else end
        reruns.append(
            _Rerun(
                forward=forward,
                before=index,
                start_tick=start,
                forward_end_tick=end,
                ticks=max(0, stop - start),
                insert_tick=step.start_tick[index],
                release_tick=step.release_tick[forward],
            )
        )
    return reruns


class _Shift:
    """Old ticks to new ones, after the operations that run again are inserted."""

    def __init__(self, step: StepTrace, reruns: list[_Rerun]) -> None:
        self._points = np.array([rerun.insert_tick for rerun in reruns], dtype=np.int64)
        self._sums = np.cumsum([0, *(rerun.ticks for rerun in reruns)])
        self.end_tick = step.memory.end_tick + int(self._sums[-1])

    def birth(self, ticks: Array) -> Array:
        """Return the new ticks of operations."""
        return ticks + self._sums[np.searchsorted(self._points, ticks, side="right")]

    def death(self, ticks: Array) -> Array:
        """Return the new ticks of deaths: one right before a rerun stays before it."""
        return ticks + self._sums[np.searchsorted(self._points, ticks, side="left")]

    def start(self, rerun: int) -> int:
        """Return the new tick at which a rerun starts."""
        return int(self._points[rerun] + self._sums[rerun])


def _schedule(
    step: StepTrace, reruns: list[_Rerun], shift: _Shift, recompute: Recompute
) -> tuple[list[Segment], list[int], list[int], list[int]]:
    """Return segments, schedule, start ticks, and the old index of every new instance."""
    segments = list(step.segments)
    number_of: dict[tuple[int, int], int] = {}
    before = {rerun.before: index for index, rerun in enumerate(reruns)}
    schedule: list[int] = []
    start_tick: list[int] = []
    origin: list[int] = []
    moved = shift.birth(np.asarray(step.start_tick)).tolist()
    for index, number in enumerate(step.schedule):
        if index in before:
            rerun = reruns[before[index]]
            key = (step.schedule[rerun.forward], rerun.ticks)
            if key not in number_of:
                number_of[key] = len(segments)
                segments.append(_rerun_segment(segments[key[0]], rerun.ticks, recompute))
            schedule.append(number_of[key])
            start_tick.append(shift.start(before[index]))
            origin.append(rerun.forward)
        schedule.append(number)
        start_tick.append(moved[index])
        origin.append(index)
    return segments, schedule, start_tick, origin


def _rerun_segment(forward: Segment, ticks: int, recompute: Recompute) -> Segment:
    again = [
        (kernel, offset)
        for kernel, offset in zip(forward.kernels, forward.offsets, strict=True)
        if offset < ticks and not (recompute == "selective" and kernel.kind in KEPT_KINDS)
    ]
    return Segment(
        name=f"{forward.block} recompute",
        phase="recompute",
        block=forward.block,
        kernels=tuple(kernel for kernel, _ in again),
        offsets=tuple(offset for _, offset in again),
    )


def _renumber(forward: int, origin: list[int]) -> int:
    # Reruns come after every forward instance, so these keep their places.
    return origin.index(forward) if forward >= 0 else -1


class _Memory:
    """The storages of the new step, as columns of old ones: a row a storage."""

    def __init__(
        self,
        step: StepTrace,
        reruns: list[_Rerun],
        shift: _Shift,
        recompute: Recompute,
        origin: list[int],
    ) -> None:
        memory = step.memory
        self.shift = shift
        self.recompute = recompute
        self.columns = {
            name: np.asarray(values, dtype=np.int64)
            for name, values in memory
            if isinstance(values, list) and values
        }
        self._forward_end = min(
            (
                step.start_tick[index]
                for index, number in enumerate(step.schedule)
                if step.segments[number].phase == "backward"
            ),
            default=memory.end_tick,
        )
        instances = len(step.schedule)
        # A further entry, the last, is what index -1 means: no instance, no rerun.
        self._rerun_of = np.full(instances + 1, -1)
        self._new_index = np.full(instances + 1, -1)
        self._rerun_index = np.full(instances + 1, -1)
        for number, rerun in enumerate(reruns):
            self._rerun_of[rerun.forward] = number
        phase_of = [step.segments[number].phase for number in step.schedule]
        for new, old in enumerate(origin):
            if self._new_index[old] >= 0 or (phase_of[old] == "forward" and new > old):
                self._rerun_index[old] = new
            else:
                self._new_index[old] = new
        self._release = np.array([*(rerun.release_tick for rerun in reruns), 0])
        of_rows = self._rerun_of[self.columns["instance"]]
        self._rerun = _RerunRows.of(reruns, shift, of_rows)

    def build(self) -> MemoryStream:
        old, rerun = self.columns, self._rerun
        birth, death, category = old["birth_tick"], old["death_tick"], old["category"]
        again, stored = rerun.runs, np.zeros(len(birth), dtype=bool)
        if self.recompute == "selective":
            stored = again & np.isin(old["producer"], _KEPT_NUMBERS)
        second_death = self._second_death()
        others = again & ~stored
        first_death = np.where(
            death > rerun.forward_end_tick, self._held(rerun.forward_end_tick), death
        )
        kept_until = np.where(first_death <= self._forward_end, _TEMPORARY, _ACTIVATIONS)
        first = {
            **self._moved_columns(),
            "birth_tick": np.where(again, birth, self.shift.birth(birth)),
            "death_tick": np.select(
                [stored, others],
                [self._stored_death(second_death), self.shift.death(first_death)],
                self.shift.death(np.maximum(death, self._entered_until())),
            ),
            "category": np.select([stored, others], [_ACTIVATIONS, kept_until], category),
            "instance": self._new_index[old["instance"]],
        }
        second = {
            **self._moved_columns(),
            "birth_tick": rerun.new_start + birth - rerun.start_tick,
            "death_tick": second_death,
            "category": category,
            "instance": self._rerun_index[old["instance"]],
        }
        return self._stream(first, second, np.flatnonzero(others & self._reached()))

    def _stream(
        self, first: dict[str, Array], second: dict[str, Array], again: Array
    ) -> MemoryStream:
        """Return both lives by birth; rows born at once keep their order."""
        row = np.concatenate([np.arange(len(first["birth_tick"])), again])
        columns = {name: np.concatenate([first[name], second[name][again]]) for name in first}
        order = np.lexsort((row, columns["birth_tick"]))
        columns["death_tick"] = np.minimum(columns["death_tick"], self.shift.end_tick)
        return MemoryStream(
            **{name: values[order].tolist() for name, values in columns.items()},
            end_tick=self.shift.end_tick,
        )

    def _reached(self) -> Array:
        """Return whether a row is made again."""
        return self.columns["birth_tick"] < self._rerun.start_tick + self._rerun.ticks

    def _second_death(self) -> Array:
        """Return the death of the second life of the rows of blocks that run again."""
        old, rerun = self.columns, self._rerun
        death, inside = old["death_tick"], old["inside_tick"]
        others = (old["entered"] >= 0) | (old["outside_tick"] > inside)
        lives = np.minimum(np.maximum(1, death - rerun.start_tick), rerun.ticks)
        used = self.shift.death(np.where(others, inside + 1, death))
        # A pass may let go of what the backward pass would have used: it lives in the rerun then.
        again = rerun.new_start + lives
        return np.where(inside >= 0, np.maximum(used, again), again)

    def _stored_death(self, second_death: Array) -> Array:
        """Return the death of rows that selective recompute keeps from the first run on."""
        old, rerun = self.columns, self._rerun
        death = old["death_tick"]
        outlives = (old["inside_tick"] >= 0) | (death > rerun.release_tick)
        released = np.where(self._reached(), second_death, self.shift.death(rerun.release_tick))
        return np.where(outlives, self.shift.death(self._held(death)), released)

    def _held(self, otherwise: Array) -> Array:
        """Return the old tick until which others hold a row that its own block no longer does."""
        old = self.columns
        death = np.maximum(otherwise, self._entered_until())
        death = np.where(
            old["outside_tick"] >= 0, np.maximum(death, old["outside_tick"] + 1), death
        )
        return np.where(old["kept"] > 0, np.maximum(death, self._forward_end), death)

    def _entered_until(self) -> Array:
        """Return the tick until which the block that a row entered needs it; -1 for none."""
        number = self._rerun_of[self.columns["entered"]]
        return np.where(number >= 0, self._release[number], -1)

    def _moved_columns(self) -> dict[str, Array]:
        """Return what both lives have in common."""
        old = self.columns

        def moved(name: str) -> Array:
            return np.where(old[name] >= 0, self.shift.birth(old[name]), -1)

        return {
            **{name: values for name, values in old.items() if name in _UNMOVED},
            "entered": self._new_index[old["entered"]],
            "outside_tick": moved("outside_tick"),
            "inside_tick": moved("inside_tick"),
        }


@dataclass(frozen=True, kw_only=True)
class _RerunRows:
    """What is known of the rerun that each row of the old step belongs to; 0 for the others."""

    runs: Array
    """Whether it belongs to one."""
    start_tick: Array
    forward_end_tick: Array
    release_tick: Array
    ticks: Array
    new_start: Array
    """New tick at which the rerun starts."""

    @classmethod
    def of(cls, reruns: list[_Rerun], shift: _Shift, number: Array) -> _RerunRows:
        """Return them for rows of these reruns, -1 for none."""

        def column(name: str) -> Array:
            return np.array([*(getattr(rerun, name) for rerun in reruns), 0])[number]

        names = ("start_tick", "forward_end_tick", "release_tick", "ticks")
        return cls(
            runs=number >= 0,
            new_start=np.array([*map(shift.start, range(len(reruns))), 0])[number],
            **{name: column(name) for name in names},
        )


_UNMOVED = frozenset(
    {"bytes_base", "bytes_per_sample", "bytes_per_pair", "bytes_per_triple", "producer", "kept"}
)
