"""A prepared launch against the limits of its project's file, as the store has them now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from ...store.launches import Ledger
from ...store.project_limits import refuse_exceeded, standings
from ...store.spending_limits import SpendingLimits
from ..intent import intent
from ..prepared import Prepared


def held_to_project(prepared: Prepared, ledger: Ledger, *, now: Callable[[], datetime]) -> Prepared:
    """Return a launch with how the limits of its project's file stand; as it is without a file.

    `Ledger.reserve` looks again in the transaction that keeps the launch.

    Raises:
        LimitError: it would pass one that refuses, or how long it runs is not known.
        StoreError: the record of a launch that a refusing limit counts cannot be read.
    """
    file = prepared.project_file
    if file is None or not file.has_limits:
        return prepared
    counted = ledger.counted(SpendingLimits(file=file))
    limits = standings(intent(prepared, now=now), counted, file, now=now())
    refuse_exceeded(limits)
    unread = () if file.refuses else ledger.unreadable()
    notes = tuple(f"the record of {run} cannot be read: limits do not count it" for run in unread)
    kept = tuple(note for note in prepared.notes if note not in notes)
    return replace(prepared, limits=limits, notes=(*kept, *notes))
