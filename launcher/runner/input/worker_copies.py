"""Whether the processes that read data see what the file changes while it trains.

Each has a copy of the data set, made when it was started. A curriculum that goes by a global, which
`extra_state().after_step` or `on_metrics` moves on, stays there as it was at the first step, and
trains on without an error. So some batches are read here too: the first one shows whether reading
twice gives the same at all, and one that later differs, that the copies are behind.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from typing import Any

import torch
from torch.utils.data import default_collate

from ....profiles.user_model.workload import Workload, optional_function
from ..reporting.metrics import say
from .dealing import digest
from .samples import Seeded, StepOrder

LOOKED_AT = (0, 2, 20, 200)
"""Steps since the batches were opened, of each of which one micro-batch is read again."""
CHANGING = ("extra_state", "on_metrics")
"""Functions of the file that are called between steps, and may change what it reads by."""


def may_change(workload: Workload) -> bool:
    """Return whether a file has something by which its data may change while it trains."""
    return any(optional_function(workload, name) is not None for name in CHANGING)


class WorkerCopies:
    """Compares what worker processes read with what this process reads, at a few steps."""

    def __init__(
        self, dataset: Seeded, order: StepOrder, collate: Callable[[list[Any]], Any] | None
    ) -> None:
        """Prepare it.

        Args:
            dataset: as the workers have it.
            order: of this rank's samples, from the first step on.
            collate: what puts samples together; None: torch's own.
        """
        self._dataset = dataset
        self._places = iter(order)
        self._per_step = order.per_step
        self._collate = collate or default_collate
        self._step = 0
        self._is_over = False

    def look(self, batch: Any, size: int) -> None:
        """Look at the first micro-batch of a step, which a worker read; say if it is behind.

        Args:
            batch: as it was put together.
            size: its samples.
        """
        step, self._step = self._step, self._step + 1
        if self._is_over:
            return
        places = list(islice(self._places, self._per_step))[:size]
        if step not in LOOKED_AT:
            return
        is_same = self._reads_same(places, batch)
        self._is_over = not is_same or step == LOOKED_AT[-1]
        if is_same is False and step > 0:
            say(
                "warning: the processes that load data read other samples than this one would: they"
                " have copies of the data set, which do not see what changes while it trains (a"
                " curriculum). Give the data set a method set_step(step) or set_epoch(epoch)"
                " (docs/running.md), or read in this process: --workers 0"
            )

    def _reads_same(self, places: list[Any], batch: Any) -> bool | None:
        """Return whether a batch is what this process reads; None where it cannot read it."""
        kept = random.getstate()
        try:
            with torch.random.fork_rng(devices=()):
                own = self._collate([self._dataset[one] for one in places])
                return digest(own) == digest(batch)
        except Exception:  # The run itself names a fault.
            return None
        finally:
            random.setstate(kept)
