"""What a guard decides, and the sentence that says why.

    why           exit code
    done          0            the command ended well, by itself
    failed        its own      the command ended by itself, and not well (128 + n: by signal n)
    loss          its own, 4   the loss is no number: the command said so itself, or was stopped
    smoke, stop   0            it was stopped as the user asked
    hand-over     0            it continues on on-demand machines
    signal        128 + n      it was stopped from outside: cancelled, preempted, a node failed
    notice        143          its cloud is about to take a machine away: it goes on elsewhere
    max-cost, max-hours, deadline, projection, network, utilization, heartbeat    4

`network` is a projection above what was estimated, on nodes whose network is not the planned one.

With a task that follows (stage.py) only a hand-over ends with 0; else it is `OVER`.

Where other nodes may still upload, a run that was stopped in good order still ends with 0,
and only the verdict says 4 (`Orders.others_upload`).

A run that was stopped from outside does not end with 0, though the runner itself does: to
SkyPilot 0 means that the run is over, and a preempted one must go on elsewhere.
"""

from __future__ import annotations

import signal
from dataclasses import asdict, dataclass
from typing import Any

from ..node.network import NetworkSeen, shortfall
from ..node.notice import Notice
from ..orders import SECONDS_PER_HOUR, Orders
from .projection import Projected
from .spending import Account

STOPPED = 4
"""gpuplan's exit code of a limit or a guard."""
ENDED_BY_SIGTERM = 128 + 15
"""After which SkyPilot starts a job on spot machines again."""
NOTICE = "notice"
OVER = 99
"""A run that ended well, though its task must not: the one that follows would begin."""
LOSS_FOR_S = 60.0
"""How long the loss may be no number before the run is stopped; the runner ends by itself then."""
CHECKPOINTS = 3.0
"""Times the longest write so far that a checkpoint may take: one may be under way already."""
SAME_USD = 0.005
"""Dollars that differ by less are the same cents."""
HUNG_S = 60.0
"""The least that a command may go on after it was asked to stop."""


@dataclass(frozen=True)
class Verdict:
    """Why a run ends, and with which code."""

    why: str
    text: str
    exit_code: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as the state file has it."""
        return asdict(self)


@dataclass(frozen=True)
class Reading:
    """What was seen of the run; times on the guard's own clock, seconds since its start."""

    step: int | None = None
    """Done, as the newest line of metrics says."""
    saved_step: int = 0
    """Step of the newest checkpoint; read only where the orders need it."""
    trained: int = 0
    """Steps of this attempt."""
    times_s: tuple[float, ...] = ()
    """Step times of the last settled steps of this attempt."""
    settled: int = 0
    """How many settled steps there were."""
    checkpoint_s: float | None = None
    """The longest that a checkpoint took to be whole, since this attempt began."""
    loss_bad_since_s: float | None = None
    """Since when every line of metrics has had a loss that is no number."""
    alive_at_s: float | None = None
    """When there last was a line of metrics or a heartbeat."""
    busy: float | None = None
    """How busy the devices were on average over the time that the orders say; None: too early."""
    network: NetworkSeen = NetworkSeen()
    """What was seen of the network between nodes."""


def wind_down_s(orders: Orders, reading: Reading) -> float:
    """Return how long the machines cost after a stop: a checkpoint as known, and the tail."""
    return orders.tail_s + (reading.checkpoint_s or 0.0)


def grace_s(orders: Orders, reading: Reading, verdict: Verdict) -> float:
    """Return how long a command that was asked to stop may go on.

    grace = 3 × (the longest write so far + the longest of the last steps) + 30 s, where a write is
    known; a run that hangs gets a minute, as it writes nothing.
    """
    if verdict.why == "heartbeat":
        return HUNG_S
    if reading.checkpoint_s is None:
        return orders.grace_s
    step_s = max(reading.times_s, default=0.0)
    return max(HUNG_S, CHECKPOINTS * (reading.checkpoint_s + step_s) + 30.0)


def over_limit(
    orders: Orders, account: Account, reading: Reading, *, paid_s: float, now_s: float
) -> Verdict | None:
    """Return the verdict of the limits on time and cost, which hold even if nothing can be read.

    A cap is reached once stopping now would reach it:

        spent once a checkpoint and the tail have passed + what is paid after the machines ≥ cap

    Where bills are rounded up, once stopping a poll later would pass it: until then nothing more is
    billed.

    Args:
        orders: the limits.
        account: of this attempt.
        reading: for how long a checkpoint takes.
        paid_s: since the attempt began to cost.
        now_s: since 1970.
    """
    wind_s = wind_down_s(orders, reading)
    spent_usd = account.spent_usd(paid_s)
    if orders.is_rounded:
        after_usd = account.spent_usd(paid_s + wind_s + orders.poll_s) - SAME_USD
    else:
        after_usd = account.spent_usd(paid_s + wind_s)
    if orders.most_usd is not None and after_usd >= orders.most_usd:
        gone_usd = after_usd + orders.after_usd
        risen = f", at prices up to {orders.price_top:g} times these" * (orders.price_top > 1)
        return Verdict(
            "max-cost",
            f"${spent_usd:,.2f} are spent, and ${gone_usd:,.2f} once the machines are gone:"
            f" the limit is ${orders.max_cost_usd:,.2f}{risen}.",
            STOPPED,
        )
    hours = account.hours(paid_s)
    if orders.max_hours is not None and hours + wind_s / SECONDS_PER_HOUR >= orders.max_hours:
        return Verdict(
            "max-hours",
            f"The machines have run for {hours:,.2f} hours, and {wind_s / 60:.0f} minutes more"
            f" until they are gone: the limit is {orders.max_hours:g} hours.",
            STOPPED,
        )
    if orders.deadline_s is not None and now_s >= orders.deadline_s:
        return Verdict("deadline", "The deadline cannot be met any more.", STOPPED)
    return None


def unhealthy(orders: Orders, reading: Reading, *, running_s: float) -> Verdict | None:
    """Return the verdict on a run that makes no progress: no steps, no loss, or idle devices.

    Args:
        orders: what is expected of it.
        reading: what was seen of it.
        running_s: since the command was started, on the clock of the reading.
    """
    bad_s = reading.loss_bad_since_s
    if bad_s is not None and running_s - bad_s >= LOSS_FOR_S:
        return Verdict("loss", "The loss is no number; nothing more can be learned.", STOPPED)
    verdict = _silent(orders, reading, running_s)
    if verdict is not None:
        return verdict
    wanted = orders.min_gpu_utilization
    if wanted is not None and reading.busy is not None and reading.busy < wanted.fraction:
        return Verdict(
            "utilization",
            f"The devices were busy for {reading.busy:.0%} of the last {wanted.for_s / 60:g}"
            f" minutes, less than the {wanted.fraction:.0%} that are asked for.",
            STOPPED,
        )
    return None


def _silent(orders: Orders, reading: Reading, running_s: float) -> Verdict | None:
    if reading.trained == 0:
        limit_s = orders.startup_timeout_s
        if limit_s is None or running_s < limit_s:
            return None
        text = f"There was no step in the first {limit_s / 60:g} minutes."
        return Verdict("heartbeat", text, STOPPED)
    if orders.heartbeat_timeout_s is None:
        return None
    # Steps wait while a checkpoint is written behind the one before.
    limit_s = orders.heartbeat_timeout_s + CHECKPOINTS * (reading.checkpoint_s or 0.0)
    quiet_s = running_s - (reading.alive_at_s or 0.0)
    if quiet_s < limit_s:
        return None
    return Verdict("heartbeat", f"No sign of life for {quiet_s / 60:.0f} minutes.", STOPPED)


def projected(orders: Orders, projection: Projected, reading: Reading) -> Verdict | None:
    """Return the verdict on a projection; None goes on. Slow steps have their cause in the name."""
    if orders.smoke:
        return Verdict("smoke", projection.text, 0)
    wanted = orders.projection
    is_above = projection.outcome.startswith("above")
    if is_above and wanted is not None and wanted.action != "continue":
        network = shortfall(orders.network, reading.network)
        if network is not None:
            return Verdict("network", f"{projection.text} {network}", STOPPED)
        return Verdict("projection", projection.text, STOPPED)
    return None


def asked() -> Verdict:
    """Return the verdict of the user who asked it to stop."""
    return Verdict("stop", "The user asked it to stop.", 0)


def signalled(number: int) -> Verdict:
    """Return the verdict of a signal from outside."""
    name = signal.Signals(number).name
    return Verdict("signal", f"{name} came from outside the run.", 128 + number)


def noticed(notice: Notice) -> Verdict:
    """Return the verdict of a cloud's notice; ends as SIGTERM does, after which a run goes on."""
    return Verdict(
        NOTICE,
        f"{notice.cloud} takes this machine away ({notice.said}), in about {notice.left_s:.0f} s:"
        " it writes a checkpoint, to go on elsewhere.",
        ENDED_BY_SIGTERM,
    )


def stopped_elsewhere() -> Verdict:
    """Return the verdict on a run that the first node's guard did not ask to stop."""
    return Verdict(
        "signal",
        "Another of its nodes or processes was told to stop, before the last step.",
        ENDED_BY_SIGTERM,
    )


def ended(code: int, *, loss_is_bad: bool) -> Verdict:
    """Return the verdict on a command that ended by itself.

    Args:
        code: negative: the number of the signal that ended it.
        loss_is_bad: whether the last known loss is not a number.
    """
    exit_code = code if code >= 0 else 128 - code
    if code == 0:
        return Verdict("done", "The command ended well.", 0)
    if loss_is_bad:
        return Verdict("loss", "The loss became no number, and the command ended.", exit_code)
    how = f"with exit code {code}" if code > 0 else f"by signal {-code}"
    return Verdict("failed", f"The command ended {how}.", exit_code)
