"""How long a machine may exist, from the orders alone: the pure part of timer.py.

    allowed_s = the least of (max_cost - spent) / rate, max_hours - hours, deadline + tail - began
    end_s     = allowed_s + 2 × the grace of a checkpoint + uploads + the tear-down
    set-up    ≤ the least of its own limit and allowed_s - tail

All counted from when the machine began to cost. Where nothing limits a run, its end is the stated
default, or none where its length is not known; a machine on which nothing runs ends even so.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..orders import SECONDS_PER_HOUR, Orders, TimerOrders

GRACES = 2
STOP_SETUP, END = "stop-setup", "end"
SETUP = "setup"
"""Why a set-up is stopped that has used up its own limit."""


@dataclass(frozen=True)
class Limits:
    """The limits of one machine, seconds."""

    setup_s: float
    """Longest set-up, from its start."""
    setup_why: str
    """What limits set-up: `setup`, or the limit of the run that leaves it less (`max-cost`, …)."""
    after_setup_s: float
    """From a set-up that was stopped to the end of the machine."""
    unowned_s: float
    """Without a set-up or a guard in progress."""
    end_s: float | None
    """Since the machine began to cost, whatever runs on it; None where nothing limits it."""
    after_stuck_s: float = 0.0
    """From a run that cannot be killed to the end of the machine: for what uploads beside it."""


def limits(orders: Orders, timer: TimerOrders, *, began_s: float, used_s: float) -> Limits:
    """Return the limits of a machine whose set-up starts now.

    Args:
        orders: at the price of its place.
        timer: of the same orders.
        began_s: when it began to cost, since 1970.
        used_s: how long it has cost by now.
    """
    allowed = _allowed(orders, began_s)
    setup_s, setup_why = timer.setup_s, SETUP
    if allowed is not None:
        allowed_s, why = allowed
        left_s = max(0.0, allowed_s - orders.tail_s - used_s)
        if left_s < setup_s:
            setup_s, setup_why = left_s, why
    return Limits(
        setup_s=setup_s,
        setup_why=setup_why,
        after_setup_s=timer.after_setup_s,
        unowned_s=timer.unowned_s,
        end_s=end_s(orders, timer, began_s=began_s),
        after_stuck_s=timer.margin_s,
    )


def end_s(orders: Orders, timer: TimerOrders, *, began_s: float) -> float | None:
    """Return when a machine ends whatever runs on it, seconds since it began to cost."""
    allowed = _allowed(orders, began_s)
    if allowed is not None:
        # A run that is stopped may take a grace to write its checkpoint, and the guards of other
        # nodes act a grace later than the first.
        return allowed[0] + GRACES * orders.grace_s + timer.margin_s
    projection = orders.projection
    goes_on = projection is None or projection.action == "continue"
    return None if goes_on else timer.default_end_s


def _allowed(orders: Orders, began_s: float) -> tuple[float, str] | None:
    """Return how long a machine may exist, seconds, and the limit that says so."""
    allowed = []
    if orders.most_usd is not None and orders.usd_per_s > 0:
        left_usd = orders.most_usd - orders.spent_before_usd
        allowed.append((left_usd / orders.usd_per_s, "max-cost"))
    if orders.max_hours is not None:
        left_hours = orders.max_hours - orders.hours_before
        allowed.append((left_hours * SECONDS_PER_HOUR, "max-hours"))
    if orders.deadline_s is not None:
        # That of the training: the idle minutes, which a cap includes, come after it.
        allowed.append((orders.deadline_s - began_s + orders.tail_s, "deadline"))
    if not allowed:
        return None
    seconds, why = min(allowed)
    return max(0.0, seconds), why


class Countdown:
    """What a timer has decided so far; every time is seconds since the machine began to cost."""

    def __init__(self, held: Limits, *, used_s: float) -> None:
        """Begin to count.

        Args:
            held: of this machine.
            used_s: how long it has cost by now.
        """
        self._held = held
        self._began_s = used_s
        self._owned_at_s = used_s
        self._end_s = held.end_s
        self._stopped_setup = False
        self._stuck_at_s: float | None = None
        self.why = ""
        """The reason for the last action, for the user."""

    def tick(
        self, now_s: float, *, setting_up: bool, guarded: bool, stuck: bool = False
    ) -> str | None:
        """Return STOP_SETUP once when set-up is to be stopped, END when the machine is to end.

        Args:
            now_s: how long the machine has cost.
            setting_up: whether the shell of the set-up lives.
            guarded: whether a guard runs, or ranks that a guard on another node has started.
            stuck: whether a guard has found that its run cannot be killed.
        """
        if setting_up or guarded:
            self._owned_at_s = now_s
        if self._end_s is not None and now_s >= self._end_s:
            if not self._stopped_setup:
                self.why = f"it has existed for {_hours(now_s)}, which is all that its limits allow"
            return END
        if now_s - self._owned_at_s >= self._held.unowned_s:
            for_s = _hours(self._held.unowned_s)
            self.why = f"neither set-up nor a run was in progress for {for_s}"
            return END
        if stuck and self._stuck_at_s is None:
            self._stuck_at_s = now_s
        if self._stuck_at_s is not None and now_s - self._stuck_at_s >= self._held.after_stuck_s:
            self.why = "its run does not end even when it is killed"
            return END
        if setting_up and not self._stopped_setup and self._setup_is_over(now_s):
            self._stopped_setup = True
            self.why = f"set-up did not end within {_hours(self._held.setup_s)}"
            if self._held.setup_why != SETUP:
                self.why += f" (the limit is --{self._held.setup_why})"
            after_s = now_s + self._held.after_setup_s
            self._end_s = after_s if self._end_s is None else min(self._end_s, after_s)
            return STOP_SETUP
        return None

    def _setup_is_over(self, now_s: float) -> bool:
        return now_s - self._began_s >= self._held.setup_s


def _hours(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / SECONDS_PER_HOUR:.1f} h"
