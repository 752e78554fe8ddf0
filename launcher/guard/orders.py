"""What a guard holds a run to: `guard.json`, written when a launch starts.

Seconds, hours and dollars as the names say; points in time are seconds since 1970.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

SECONDS_PER_HOUR = 3600.0
DEFAULT_GRACE_S = 600.0
ACTIONS = ("stop", "ask", "continue")
STOP_FILE = "~/gpuplan-stop"


class OrdersError(ValueError):
    """The orders cannot be read."""


@dataclass(frozen=True)
class Busy:
    """How busy the devices of a node must be."""

    fraction: float
    """Fraction of the time, averaged over the devices."""
    for_s: float
    """Over how long that is averaged."""


@dataclass(frozen=True)
class ProjectionOrders:
    """When the total is projected again, and what it is held against."""

    total_steps: int
    """Optimizer steps of the whole run."""
    expected_usd: float | None = None
    low_usd: float | None = None
    """Bounds of the estimate's 80 % interval, start and end of the machines included."""
    high_usd: float | None = None
    action: str = "ask"
    """`stop`, `ask` (the same on a node, where nobody is there to answer) or `continue`."""
    steps: int = 30
    settled: int = 3
    """Steps before those, whose times do not count."""

    def times(self, share: float) -> ProjectionOrders:
        """Return the same with the dollars of another price, so many times as high."""
        return replace(
            self,
            expected_usd=_times(self.expected_usd, share),
            low_usd=_times(self.low_usd, share),
            high_usd=_times(self.high_usd, share),
        )


@dataclass(frozen=True)
class HandOver:
    """When a run on spot machines must move to on-demand ones: handover.py."""

    total_steps: int
    """Optimizer steps of the whole run."""
    step_s: float
    """The slowest predicted, until steps were timed."""
    restart_s: float
    """The slowest start of machines."""
    slower: float = 1.0
    """What a run takes for every second of its steps: checkpoints, evaluation and failures."""


@dataclass(frozen=True)
class NetworkOrders:
    """What the plan counts on between nodes: network.py. None is not known."""

    interfaces: int | None = None
    """Of each node."""
    bytes_per_s: float | None = None
    """Bus bandwidth of an all-reduce over all of them."""


@dataclass(frozen=True)
class TimerOrders:
    """When a machine ends itself, if nothing else has ended it: limits.py, timer.py."""

    setup_s: float
    """Longest time that set-up may take."""
    unowned_s: float
    """How long a machine may exist without a set-up or a guard in progress."""
    margin_s: float
    """After the last moment that the limits allow: uploads, and the tear-down by others."""
    after_setup_s: float = 600.0
    """From a set-up that was stopped to the end: its log is read, others may tear down."""
    default_end_s: float | None = None
    """When a machine that nothing else limits ends itself; None where the length of the run is not
    known."""
    power_off: Sequence[str] = ()
    """The command that ends the machine; none where it must not be tried."""
    power_off_on: Sequence[str] = ()
    """Clouds on which that ends what the machine costs, as SkyPilot names them, lower case."""
    poll_s: float = 15.0
    retry_s: float = 60.0
    """Between two tries to power off."""


@dataclass(frozen=True)
class Orders:
    """What stops a run before its last step; None holds nothing."""

    run_id: str
    usd_per_hour: float
    """All nodes, where it is dearest of the places that are tried."""
    requested_at_s: float
    """When this launch was asked for; it tells launches of one run apart."""
    usd_per_hour_at: Mapping[str, float] = field(default_factory=dict)
    """All nodes, in each place: `aws/us-east-1`, `aws/us-east-1/us-east-1a`."""
    spot_usd_per_hour_at: Mapping[str, float] = field(default_factory=dict)
    """The same on spot machines, where both are tried; the other is then what others cost."""
    minimum_s: float = 0.0
    """The least that is billed of a machine, however soon it ends."""
    increment_s: float = 0.0
    """To what its time is rounded up; 0 rounds nothing."""
    spent_before_usd: float = 0.0
    """Cost of earlier launches of this run."""
    hours_before: float = 0.0
    max_cost_usd: float | None = None
    """Limit on the cost of all attempts together, until the machines are torn down."""
    price_top: float = 1.0
    """How high the price of its machines may rise, over what they cost here: spot prices move, and
    no guard sees it. That limit is held as if they cost so much all the time."""
    max_hours: float | None = None
    tail_s: float = 0.0
    """How long the machines still cost after the job has ended."""
    after_usd: float = 0.0
    """What is still paid once the machines are gone: SkyPilot's controller, until it stops."""
    waiting_usd_per_hour: float = 0.0
    """What is paid while the run waits for machines: SkyPilot's controller."""
    grace_s: float = DEFAULT_GRACE_S
    """To write a checkpoint, while it is not known how long that takes."""
    own_runner: bool = False
    """Whether gpuplan's runner trains: it writes heartbeats and polls the stop file."""
    others_upload: bool = False
    """Whether other nodes may still bring results to a bucket when this one has: SkyPilot kills all
    nodes as soon as one fails, so that a run that was stopped in good order then ends with 0."""
    heartbeat_timeout_s: float | None = None
    """Heartbeat timeout: the longest time between two signs of life, after the first step."""
    startup_timeout_s: float | None = None
    """Longest time from the start to the first step."""
    min_gpu_utilization: Busy | None = None
    projection: ProjectionOrders | None = None
    smoke: bool = False
    """End once the projection is made."""
    deadline_s: float | None = None
    """Deadline: the run stops when this time has come."""
    hand_over: HandOver | None = None
    """When the run moves to on-demand machines; None keeps it on those it has."""
    notices: bool = False
    """Whether the machines may be spot ones, of which clouds give notice: notice.py."""
    network: NetworkOrders | None = None
    """What was planned between several nodes; None for one."""
    timer: TimerOrders | None = None
    """When the machine ends itself; None where it does not."""
    poll_s: float = 2.0
    state_every_s: float = 10.0
    """How old what is left in the folder of results may be."""
    stop_file: str = STOP_FILE
    """The stop file, on the first node: the user asks the run to stop."""

    @property
    def most_usd(self) -> float | None:
        """Return the limit on the machines' cost in dollars as they are counted here.

        That is at no risen price, and without what is still paid once they are gone.
        """
        if self.max_cost_usd is None:
            return None
        return max(0.0, self.max_cost_usd - self.after_usd) / self.price_top

    @property
    def usd_per_s(self) -> float:
        """Return dollars a second of all nodes."""
        return self.usd_per_hour / SECONDS_PER_HOUR

    @property
    def is_rounded(self) -> bool:
        """Return whether a bill may be of more time than machines were there."""
        return self.minimum_s > 0 or self.increment_s > 0

    def billed_s(self, seconds: float) -> float:
        """Return for how long machines are billed that were there for so many seconds."""
        if self.increment_s:
            seconds = math.ceil(seconds / self.increment_s) * self.increment_s
        return max(seconds, self.minimum_s)

    def at(self, cloud: str, region: str, zone: str, *, is_spot: bool = False) -> Orders:
        """Return the orders with the price of a place, and what was estimated in proportion.

        Unchanged where that price is not among them.
        """
        parts = [part for part in (cloud.lower(), region, zone) if part]
        names = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
        rates = {**self.usd_per_hour_at, **(self.spot_usd_per_hour_at if is_spot else {})}
        rate = next((rates[one] for one in names if one in rates), None)
        if rate is None or self.usd_per_hour == 0:
            return self
        share, projection = rate / self.usd_per_hour, self.projection
        if projection is not None:
            projection = projection.times(share)
        # Where both are tried, those that are not spot keep their price.
        moves = is_spot or not self.spot_usd_per_hour_at
        top = self.price_top if moves else 1.0
        return replace(self, usd_per_hour=rate, projection=projection, price_top=top)

    def to_json(self) -> str:
        """Return what `from_json` reads."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Orders:
        """Return the orders of a text.

        Raises:
            OrdersError: it is none, or holds a number that none can be.
        """
        try:
            values = json.loads(text)
            if not isinstance(values, dict):
                raise OrdersError("no JSON object")
            busy, projection = values.get("min_gpu_utilization"), values.get("projection")
            handed, timer = values.get("hand_over"), values.get("timer")
            network = values.get("network")
            orders = cls(
                **{
                    **values,
                    "min_gpu_utilization": None if busy is None else Busy(**busy),
                    "projection": None if projection is None else ProjectionOrders(**projection),
                    "hand_over": None if handed is None else HandOver(**handed),
                    "network": None if network is None else NetworkOrders(**network),
                    "timer": None if timer is None else _timer(timer),
                }
            )
            _check(orders)
        except (TypeError, ValueError, AttributeError) as error:
            raise OrdersError(str(error)) from None
        return orders


def _times(value: float | None, share: float) -> float | None:
    return None if value is None else value * share


POSITIVE = ("poll_s", "state_every_s", "price_top")
NUMBERS = (
    "usd_per_hour",
    "requested_at_s",
    "minimum_s",
    "increment_s",
    "spent_before_usd",
    "hours_before",
    "after_usd",
    "waiting_usd_per_hour",
    "max_cost_usd",
    "max_hours",
    "tail_s",
    "grace_s",
    "heartbeat_timeout_s",
    "startup_timeout_s",
    "deadline_s",
    *POSITIVE,
)
MAY_BE_MISSING = tuple(
    one.name for one in fields(Orders) if one.name in NUMBERS and one.default is None
)


def _check(orders: Orders) -> None:
    for name in NUMBERS:
        _number(name, getattr(orders, name), may_be_none=name in MAY_BE_MISSING)
    for rates in (orders.usd_per_hour_at, orders.spot_usd_per_hour_at):
        for place, rate in rates.items():
            _number(f"the price of {place}", rate)
    if orders.hand_over is not None:
        for name, value in asdict(orders.hand_over).items():
            _number(f"{name} of the hand-over", value)
    if orders.network is not None:
        for name, value in asdict(orders.network).items():
            _number(f"{name} of the network", value, may_be_none=True)
    if orders.timer is not None:
        _check_timer(orders.timer)
    for name in POSITIVE:
        if not getattr(orders, name) > 0:
            raise OrdersError(f"{name} is not above zero")
    if orders.min_gpu_utilization is not None:
        _number("fraction", orders.min_gpu_utilization.fraction)
        _number("for_s", orders.min_gpu_utilization.for_s)
    projection = orders.projection
    if projection is None:
        return
    for name in ("expected_usd", "low_usd", "high_usd"):
        _number(name, getattr(projection, name), may_be_none=True)
    for name in ("total_steps", "steps", "settled"):
        _number(name, getattr(projection, name))
    if projection.steps < 1:
        raise OrdersError("steps of the projection is not above zero")
    if projection.action not in ACTIONS:
        raise OrdersError(f"action {projection.action!r} is none of {', '.join(ACTIONS)}")


def _timer(values: Mapping[str, Any]) -> TimerOrders:
    made = TimerOrders(**values)
    for name in ("power_off", "power_off_on"):
        words = getattr(made, name)
        # A text is a sequence of texts too: as a command it would be its first letter.
        if isinstance(words, str) or not all(isinstance(one, str) for one in words):
            raise OrdersError(f"{name} of the timer is no list of words")
    return replace(made, power_off=tuple(made.power_off), power_off_on=tuple(made.power_off_on))


def _check_timer(timer: TimerOrders) -> None:
    for name in ("setup_s", "unowned_s", "margin_s", "after_setup_s", "poll_s", "retry_s"):
        _number(f"{name} of the timer", getattr(timer, name))
    _number("default_end_s of the timer", timer.default_end_s, may_be_none=True)
    if not (timer.poll_s > 0 and timer.retry_s > 0):
        raise OrdersError("poll_s or retry_s of the timer is not above zero")


def _number(name: str, value: object, *, may_be_none: bool = False) -> None:
    if value is None and may_be_none:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise OrdersError(f"{name} is {value!r}, which is no number of zero or more")
