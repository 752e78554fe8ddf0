"""What the backward pass needs of the forward pass, and until when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .execution import BlockExecution
from .storages import ROOT, Storages


class Uses:
    """Notes which storages of the forward pass later operations touch.

    Args:
        storages: of the step.
        instances: its block executions so far, in the order in which they began.
    """

    def __init__(self, storages: Storages, instances: Sequence[BlockExecution]) -> None:
        self._storages = storages
        self._instances = instances
        self._written: dict[int, int] = {}
        """Last tick of the forward pass that wrote a row in place."""
        self.rerun_end: dict[int, int] = {}
        """Per block execution: the tick at which a recompute of it has all that was saved."""
        self.release: dict[int, int] = {}
        """Per block execution: the tick at which the last saved tensor is used up."""

    def note_write(self, keys: Iterable[int], tick: int) -> None:
        """Note that an operation of the forward pass writes into these storages."""
        for key in keys:
            row = self._storages.row(key)
            if row is not None:
                self._written[row] = tick

    def note(self, touched: Iterable[int], run: int, node_tick: int, tick: int) -> None:
        """Note which storages of the forward pass a backward operation needs.

        Args:
            touched: keys of the storages that it takes.
            run: the block execution that it belongs to.
            node_tick: when its autograd node was made; -1 where that is not known.
            tick: the tick that it is.
        """
        rows, instances = self._storages.rows, self._instances
        for key in touched:
            row = self._storages.row(key)
            if row is None:
                continue
            born_in = rows.instance[row]
            made_by = None
            if born_in >= 0:
                born = instances[born_in]
                if born.phase != "forward":
                    continue
                made_by = born.run
                if made_by == run:
                    rows.inside[row] = tick
                else:
                    rows.outside[row] = tick
            if run != ROOT and node_tick >= 0:
                # What the operation itself made is saved only after it ran.
                made = node_tick in (rows.birth[row], self._written.get(row, -1))
                end = node_tick + (1 if made else 0)
                self.rerun_end[run] = max(self.rerun_end.get(run, 0), end)
                self.release[run] = tick + 1
