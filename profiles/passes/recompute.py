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

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import accumulate

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

KEPT_KINDS: frozenset[KernelKind] = frozenset(("gemm", "attention", "convolution", "rnn"))
_KEPT_NUMBERS = frozenset(KERNEL_KINDS.index(kind) for kind in KEPT_KINDS)
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
        self._points = [rerun.insert_tick for rerun in reruns]
        self._sums = [0, *accumulate(rerun.ticks for rerun in reruns)]
        self.end_tick = step.memory.end_tick + self._sums[-1]

    def birth(self, tick: int) -> int:
        """Return the new tick of an operation."""
        return tick + self._sums[bisect_right(self._points, tick)]

    def death(self, tick: int) -> int:
        """Return the new tick of a death: one right before a rerun stays before it."""
        return tick + self._sums[bisect_left(self._points, tick)]

    def start(self, rerun: int) -> int:
        """Return the new tick at which a rerun starts."""
        return self._points[rerun] + self._sums[rerun]


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
        start_tick.append(shift.birth(step.start_tick[index]))
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


@dataclass
class _Columns:
    rows: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, *values: int) -> None:
        self.rows.append(values)

    def columns(self) -> list[list[int]]:
        # By birth; rows born before the step keep their order.
        return [list(column) for column in zip(*sorted(self.rows, key=_by_birth), strict=True)]


def _by_birth(row: tuple[int, ...]) -> int:
    return row[0]


class _Memory:
    """The storages of the new step."""

    def __init__(
        self,
        step: StepTrace,
        reruns: list[_Rerun],
        shift: _Shift,
        recompute: Recompute,
        origin: list[int],
    ) -> None:
        self.step = step
        self.shift = shift
        self.recompute = recompute
        self.reruns = reruns
        self._rerun_of = {rerun.forward: index for index, rerun in enumerate(reruns)}
        self._forward_end = min(
            (
                step.start_tick[index]
                for index, number in enumerate(step.schedule)
                if step.segments[number].phase == "backward"
            ),
            default=step.memory.end_tick,
        )
        phase_of = [step.segments[number].phase for number in step.schedule]
        self._new_index: dict[int, int] = {}
        self._rerun_index: dict[int, int] = {}
        for new, old in enumerate(origin):
            if old in self._new_index or (phase_of[old] == "forward" and new > old):
                self._rerun_index[old] = new
            else:
                self._new_index[old] = new

    def build(self) -> MemoryStream:
        memory, table = self.step.memory, _Columns()
        for row, birth in enumerate(memory.birth_tick):
            instance = memory.instance[row]
            number = self._rerun_of.get(instance) if instance >= 0 else None
            if number is None:
                death = self._held(row, memory.death_tick[row], widen_only=True)
                self._add(table, row, self.shift.birth(birth), self.shift.death(death), instance)
            else:
                self._split(table, row, number)
        columns = table.columns()
        return MemoryStream(
            birth_tick=columns[0],
            death_tick=[min(tick, self.shift.end_tick) for tick in columns[1]],
            bytes_base=columns[2],
            bytes_per_sample=columns[3],
            category=columns[4],
            instance=columns[5],
            end_tick=self.shift.end_tick,
            producer=columns[6],
            entered=columns[7],
            outside_tick=columns[8],
            inside_tick=columns[9],
            kept=columns[10],
        )

    def _split(self, table: _Columns, row: int, number: int) -> None:
        """Add a row of a block that runs again: its first life, and its second if it has one."""
        memory, rerun = self.step.memory, self.reruns[number]
        birth, death = memory.birth_tick[row], memory.death_tick[row]
        runs_again = birth < rerun.start_tick + rerun.ticks
        stored = self.recompute == "selective" and memory.producer[row] in _KEPT_NUMBERS
        if stored:
            self._store(table, row, number)
            return
        first_death = death
        if death > rerun.forward_end_tick:
            first_death = self._held(row, rerun.forward_end_tick)
        category = _TEMPORARY if first_death <= self._forward_end else _ACTIVATIONS
        self._add(
            table, row, birth, self.shift.death(first_death), rerun.forward, category=category
        )
        if runs_again:
            start = self.shift.start(number)
            new_birth = start + birth - rerun.start_tick
            self._add(table, row, new_birth, self._second_death(row, number), None, rerun.forward)

    def _second_death(self, row: int, number: int) -> int:
        memory, rerun = self.step.memory, self.reruns[number]
        start = self.shift.start(number)
        death, inside = memory.death_tick[row], memory.inside_tick[row]
        if inside >= 0:
            others = memory.entered[row] >= 0 or memory.outside_tick[row] > inside
            return self.shift.death(inside + 1 if others else death)
        return start + min(max(1, death - rerun.start_tick), rerun.ticks)

    def _store(self, table: _Columns, row: int, number: int) -> None:
        """Add a row that selective recompute keeps from the first run on."""
        memory, rerun = self.step.memory, self.reruns[number]
        birth, death = memory.birth_tick[row], memory.death_tick[row]
        if memory.inside_tick[row] >= 0 or death > rerun.release_tick:
            new_death = self.shift.death(max(death, self._held(row, death)))
        elif birth < rerun.start_tick + rerun.ticks:
            new_death = self._second_death(row, number)
        else:
            new_death = self.shift.death(rerun.release_tick)
        self._add(table, row, birth, new_death, rerun.forward, category=_ACTIVATIONS)

    def _held(self, row: int, otherwise: int, *, widen_only: bool = False) -> int:
        """Return the old tick until which others hold a row that its own block no longer does."""
        memory = self.step.memory
        death = otherwise
        entered = memory.entered[row]
        if entered in self._rerun_of:
            death = max(death, self.reruns[self._rerun_of[entered]].release_tick)
        if widen_only:
            return death
        if memory.outside_tick[row] >= 0:
            death = max(death, memory.outside_tick[row] + 1)
        if memory.kept[row]:
            death = max(death, self._forward_end)
        return death

    def _add(
        self,
        table: _Columns,
        row: int,
        birth: int,
        death: int,
        instance: int | None,
        rerun_of: int = -1,
        category: int | None = None,
    ) -> None:
        memory = self.step.memory
        index = -1
        if instance is None:
            index = self._rerun_index[rerun_of]
        elif instance >= 0:
            index = self._new_index[instance]
        table.add(
            birth,
            death,
            memory.bytes_base[row],
            memory.bytes_per_sample[row],
            memory.category[row] if category is None else category,
            index,
            memory.producer[row],
            self._new_index.get(memory.entered[row], -1),
            self._moved(memory.outside_tick[row]),
            self._moved(memory.inside_tick[row]),
            memory.kept[row],
        )

    def _moved(self, tick: int) -> int:
        return self.shift.birth(tick) if tick >= 0 else -1
