"""The windows of one pipeline stage strung together: all that follows from when storages live.

A stage's memory changes only while its own layers run, and between them nothing of it is larger
than right before or after: only the ticks of its own windows are looked at. No size is known here,
so that splits and precisions whose storages live alike share it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np

from ...parallelism.fsdp import Moment
from .stream import GROUPS, Storages

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Plateaus:
    """Stretches [P] of a cut in which the gradients stay the same, in order."""

    starts: Array
    """[P] ticks; the same stretch may be there twice."""
    before: Array
    """[P] the tick before the window of each opened."""
    in_backward: Array
    """[P] whether the backward pass of a block runs."""
    moment: Array
    """[P] which of the moments of the storages each is."""
    moments: tuple[Moment, ...]
    """[P] these moments."""
    blocks_held: dict[str, Array]
    """[P] blocks of each group that keep what they gathered."""
    ticks: Array
    """[T] all ticks of the plateaus, each plateau's together, none twice."""
    begins: Array
    """Where those of each begin."""
    lengths: Array
    again: Array
    """[P] which of the distinct ones each is."""

    def highest(self, inside: Array, ticks: int) -> Array:
        """Return [P, B]: the tick of each one's largest total, of equal ones the first.

        Args:
            inside: [T, B] totals.
            ticks: of the whole cut, more than any of them is.
        """
        largest = np.maximum.reduceat(inside, self.begins)
        is_largest = inside == np.repeat(largest, self.lengths, axis=0)
        first = np.where(is_largest, self.ticks[:, None], ticks)
        return np.minimum.reduceat(first, self.begins)[self.again]


@dataclass(frozen=True, kw_only=True, eq=False)
class Cut:
    """The storages of one stage on the ticks of its own windows alone."""

    storages: Storages
    own: Array
    """[I] whether the stage runs an instance; the optimizer is every stage's."""
    kept: Array
    """Storages that the stage has at any time."""
    rows: Array
    """[N] those of them that are there at some tick of its windows."""
    places: Array
    """[2 N] where each begins and ends, in a table of groups by ticks."""
    lengths: Array
    """[I] ticks of each own window, 0 for those of other stages."""
    _plateaus: dict[tuple[bytes, bytes | None], Plateaus] = field(default_factory=dict)

    @cached_property
    def ticks(self) -> int:
        """Ticks of all own windows."""
        return int(self.lengths.sum())

    @cached_property
    def opened(self) -> Array:
        """Ticks at which the own windows open."""
        return (np.cumsum(self.lengths) - self.lengths)[self.own]

    @cached_property
    def saved(self) -> Array:
        """Storages that wait for the backward pass when it begins."""
        one = self.storages
        turning = np.flatnonzero(self.own & one.turns_back)
        tick = one.starts[turning[0]] if len(turning) else one.starts[-1] - 1
        birth, death = one.birth[self.kept], one.death[self.kept]
        return self.kept[(birth < tick) & (death >= tick) & one.saved[self.kept]]

    @cached_property
    def held(self) -> dict[str, Array]:
        """[I] by group, how many of the stage's blocks hold what they gathered."""
        found = {}
        for name, begun in self.storages.begun.items():
            ended = self.own & self.storages.ended[name]
            # A block that ends here holds its parameters to the end.
            found[name] = np.cumsum(self.own & begun) - np.cumsum(ended) + ended
        return found

    def running(self, columns: Array) -> Array:
        """Return [groups, C, ticks] live amounts.

        Args:
            columns: [C, storages] amounts that each has.
        """
        own = columns[:, self.rows]
        change = np.concatenate([own, -own], axis=1)
        length = len(GROUPS) * (self.ticks + 1)
        table = np.stack([np.bincount(self.places, one, minlength=length) for one in change])
        # Time runs innermost, so that sums over it go through memory in order.
        totals = np.cumsum(table.reshape(len(own), len(GROUPS), -1)[:, :, : self.ticks], axis=2)
        return totals.transpose(1, 0, 2)

    def plateaus(self, changes: Array, windows: Array | None) -> Plateaus:
        """Return the plateaus.

        Args:
            changes: ticks at which the gradients change.
            windows: the instances whose plateaus are wanted, some may be twice; None for all.
        """
        key = changes.tobytes(), None if windows is None else windows.tobytes()
        if key not in self._plateaus:
            self._plateaus[key] = self._made_plateaus(changes, windows)
        return self._plateaus[key]

    def _made_plateaus(self, changes: Array, windows: Array | None) -> Plateaus:
        one = self.storages
        starts = np.array(sorted({0, *self.opened.tolist(), *changes.tolist()}), dtype=int)
        ends = np.append(starts[1:], self.ticks)
        window = np.searchsorted(self.opened, starts, side="right") - 1
        instances = np.flatnonzero(self.own)[window]
        if windows is not None:
            wanted = _places(instances, windows)
            starts, ends, window = starts[wanted], ends[wanted], window[wanted]
            instances = instances[wanted]
        once, again = np.unique(starts, return_inverse=True)
        first = np.zeros(len(once), dtype=int)
        first[again] = np.arange(len(starts))
        lengths = ends[first] - once
        begins = np.cumsum(lengths) - lengths
        moment = one.moment[instances]
        return Plateaus(
            starts=starts,
            before=np.maximum(self.opened[window] - 1, 0),
            in_backward=one.in_backward[instances],
            moment=moment,
            moments=tuple(one.moments[i] for i in moment.tolist()),
            blocks_held={name: held[instances] for name, held in self.held.items()},
            ticks=np.repeat(once - begins, lengths) + np.arange(int(lengths.sum())),
            begins=begins,
            lengths=lengths,
            again=again,
        )


def cut_of(storages: Storages, own: Array) -> Cut:
    """Return the cut of the stage that runs these instances, made once for equal ones.

    Args:
        storages: of a rank's share.
        own: [I] whether the stage runs an instance; the optimizer is every stage's.
    """
    own = own | storages.optimizes
    known, key = storages.cuts, own.tobytes()
    if key not in known:
        known[key] = _made(storages, own)
    return cast(Cut, known[key])


def _made(storages: Storages, own: Array) -> Cut:
    # Index -1, the last entry: what was there before the step is kept, what enters no block is not.
    kept = np.flatnonzero(
        np.append(own, True)[storages.instance] | np.append(own, False)[storages.entered]
    )
    lengths = np.where(own, np.diff(storages.starts), 0)
    birth, death, sees = _strung(storages, own, kept, lengths)
    rows = kept[sees]
    places = np.concatenate([birth, death])
    places += np.tile(storages.group[rows], 2) * (int(lengths.sum()) + 1)
    return Cut(storages=storages, own=own, kept=kept, rows=rows, places=places, lengths=lengths)


def _strung(
    storages: Storages, own: Array, kept: Array, lengths: Array
) -> tuple[Array, Array, Array]:
    """Return (birth, death, which storages are seen) on the ticks of the own windows alone."""
    starts, opened = storages.starts, np.cumsum(lengths) - lengths

    def strung(ticks: Array) -> tuple[Array, Array]:
        inside = np.clip(ticks, 0, starts[-1] - 1)
        window = np.searchsorted(starts, inside, side="right") - 1
        found = opened[window] + np.where(own[window], inside - starts[window], 0)
        return np.where(ticks >= starts[-1] - 1, lengths.sum() - 1, found), own[window]

    born, at_home = strung(storages.birth[kept])
    gone, _ = strung(storages.death[kept])
    gone = np.where(at_home, np.maximum(gone, born + 1), gone)
    sees = gone > born
    return born[sees], gone[sees], sees


def _places(ordered: Array, wanted: Array) -> Array:
    """Return where the wanted values stand in an ordered array, one after the other."""
    first = np.searchsorted(ordered, wanted, side="left")
    many = np.searchsorted(ordered, wanted, side="right") - first
    behind = np.cumsum(many)
    return np.repeat(first - behind + many, many) + np.arange(int(behind[-1]))
