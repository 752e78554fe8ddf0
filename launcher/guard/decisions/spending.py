"""What a run has cost: dollars and hours of every attempt, added up, however each one ended.

    usd(attempt)   = billed(seen - began) / 3600 × usd_per_hour
    billed(s)      = s rounded up to the increment, the minimum at least; once for each machine
    began          = the latest of: the machine's boot, the request, the end of the attempt before;
                     a request that lies ahead does not count
    spent          = before + waited + usd(this attempt)
    before         = max(what the store knows of earlier launches, what their guards left)
                     + the attempts of this launch
    waited         = (began - requested - hours of this launch's attempts) × waiting_usd_per_hour

The store knows of what no guard saw (machines that came up and never ran a job, or idled after
it), and guards left what a lost store does not know; the larger of the two is right in both.
Where a line of this launch's attempts cannot be read, it counts from its request instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..orders import SECONDS_PER_HOUR, Orders

SET_UP_WITHIN_S = 3600.0
"""From the boot of a rented machine to the start of its set-up: minutes."""


@dataclass(frozen=True)
class Attempt:
    """One time that a job was started, from when its machines cost until a guard last saw them."""

    attempt: int
    requested_at_s: float
    began_at_s: float
    seen_at_s: float
    usd: float
    step: int | None = None
    """The last one that is known to be done."""
    verdict: Mapping[str, Any] | None = None
    """Verdict of the guard; None where it or the machine went away before there was one."""

    @property
    def hours(self) -> float:
        """Return how long it was paid for."""
        return (self.seen_at_s - self.began_at_s) / SECONDS_PER_HOUR

    def to_dict(self) -> dict[str, Any]:
        """Return the line of `guard-attempts.jsonl`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Attempt:
        """Return the attempt of a line, or of a state file.

        Raises:
            KeyError, TypeError, ValueError: it is neither.
        """
        step = values.get("step")
        return cls(
            attempt=int(values["attempt"]),
            requested_at_s=float(values["requested_at_s"]),
            began_at_s=float(values["began_at_s"]),
            seen_at_s=float(values["seen_at_s"]),
            usd=float(values["usd"]),
            step=None if step is None else int(step),
            verdict=values.get("verdict"),
        )


@dataclass(frozen=True)
class Account:
    """What an attempt adds to; `paid_s` everywhere is the seconds since it began to cost."""

    attempt: int
    """Number of the attempt, from 1."""
    requested_at_s: float
    began_at_s: float
    before_usd: float
    before_hours: float
    usd_per_hour: float
    waited_usd: float = 0.0
    """What was paid while this launch waited for machines, until this attempt began."""
    billed_s: Callable[[float], float] = float
    """From how long machines were there to how long they are billed for."""
    same_s: float = 0.0
    """For how long attempts before had the very same machines, which are on one bill."""

    def usd(self, paid_s: float) -> float:
        """Return the dollars of this attempt."""
        earlier_s = self.billed_s(self.same_s) if self.same_s else 0.0
        seconds = self.billed_s(self.same_s + paid_s) - earlier_s
        return seconds / SECONDS_PER_HOUR * self.usd_per_hour

    def spent_usd(self, paid_s: float) -> float:
        """Return the dollars of all attempts."""
        return self.before_usd + self.waited_usd + self.usd(paid_s)

    def hours(self, paid_s: float) -> float:
        """Return the hours of all attempts."""
        return self.before_hours + paid_s / SECONDS_PER_HOUR

    def so_far(self, paid_s: float, step: int | None, verdict: Mapping[str, Any] | None) -> Attempt:
        """Return this attempt as it stands."""
        return Attempt(
            attempt=self.attempt,
            requested_at_s=self.requested_at_s,
            began_at_s=self.began_at_s,
            seen_at_s=self.began_at_s + paid_s,
            usd=self.usd(paid_s),
            step=step,
            verdict=verdict,
        )


def open_account(
    orders: Orders,
    attempts: Sequence[Attempt],
    *,
    boot_s: float | None,
    now_s: float,
    setup_s: float | None = None,
    whole: bool = True,
) -> Account:
    """Return the account of the attempt that begins now.

    Args:
        orders: of this launch.
        attempts: all that earlier guards of this run left.
        boot_s: when this machine came up; in a container that of its host, perhaps long ago; None
            where it is not known.
        now_s: by this machine's clock. A request that seems to lie ahead was made by a clock that
            is fast, and says nothing: this machine itself then tells since when it costs.
        setup_s: when set-up began, as the timer has counted; None where it is not known.
        whole: whether everything that earlier guards left could be read. Else machines of this
            launch that went away may be missing, and it counts since its request: at most what all
            of them cost.
    """
    earlier = [one for one in attempts if one.requested_at_s != orders.requested_at_s]
    own = [one for one in attempts if one.requested_at_s == orders.requested_at_s]
    number = 1 + max((one.attempt for one in attempts), default=0)
    if not whole:
        own = []
    came_s = came_up_s(boot_s, setup_s)
    seen_s = max((one.seen_at_s for one in (*earlier, *own)), default=0.0)
    if orders.requested_at_s > now_s:
        began_s = max(now_s if came_s is None else came_s, seen_s)
    else:
        began_s = max((boot_s if whole else None) or 0.0, orders.requested_at_s, seen_s)
    began_s = min(now_s, began_s)
    paid_hours = sum(one.hours for one in own)
    waited_hours = max(0.0, (began_s - orders.requested_at_s) / SECONDS_PER_HOUR - paid_hours)
    return Account(
        attempt=number,
        requested_at_s=orders.requested_at_s,
        began_at_s=began_s,
        waited_usd=waited_hours * orders.waiting_usd_per_hour,
        before_usd=max(orders.spent_before_usd, sum(one.usd for one in earlier))
        + sum(one.usd for one in own),
        before_hours=max(orders.hours_before, sum(one.hours for one in earlier)) + paid_hours,
        usd_per_hour=orders.usd_per_hour,
        billed_s=orders.billed_s,
        same_s=SECONDS_PER_HOUR
        * sum(one.hours for one in own if boot_s is not None and one.began_at_s >= boot_s),
    )


def came_up_s(boot_s: float | None, setup_s: float | None) -> float | None:
    """Return when this machine began to cost, where no request tells; None: it is not known.

    Its boot, unless set-up began so much later that it is that of the host of a container.
    """
    if boot_s is None or setup_s is None:
        return boot_s if setup_s is None else setup_s
    return boot_s if setup_s - boot_s <= SET_UP_WITHIN_S else setup_s
