"""The loop: `python3 gpuplan_guard guard.json -- COMMAND…`, on every node.

The first node (SKYPILOT_NODE_RANK, else NODE_RANK, is 0) reads and writes the folder of results
(GPUPLAN_OUT). The other nodes hold only the limits on time and cost, a grace period later than the
first one, and pass signals on. The last line on standard output is `gpuplan-guard: {…}`, for
a program to read.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from . import folder
from .decisions.handover import HAND_OVER
from .decisions.session import ASK, KILL, LEAVE, Session
from .decisions.spending import Attempt, open_account
from .decisions.verdicts import NOTICE, OVER, STOPPED, Reading, Verdict
from .node import stuck
from .node.command import Command
from .node.network import NetworkSeen, count_interfaces, shortfall
from .node.notice import Notices
from .node.patience import OneAtATime, within
from .node.readings import boot_s, setup_s
from .node.stage import ON_DEMAND, SPOT, market, stage
from .orders import Orders, OrdersError
from .watch import Watch, stopwatch

USAGE = 2
GOES_ON = (HAND_OVER, "signal", NOTICE)
"""Why an attempt ended after which the run is to go on."""
LOOK_WITHIN_S = 1.0
"""How long the home of the node may take to say whether the run is to stop."""
SAY_WITHIN_S = 5.0
"""How long whoever reads the log may take to read a line."""
FLUSH_TIMEOUT_S = 15.0
"""How long the folder of results may take to be written when all is over."""
READ_TIMEOUT_S = 120.0
"""How long it may take to be read before anything has begun: buckets are slow at first."""
PASSED_ON = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


def main(arguments: Sequence[str]) -> int:
    """Run a command under its orders; return the exit code of the node."""
    if len(arguments) < 3 or arguments[1] != "--":
        say("usage: gpuplan_guard guard.json -- COMMAND...")
        return USAGE
    path = Path(arguments[0])
    try:
        orders = at_place(Orders.from_json(path.read_text(encoding="utf-8")))
    except (OSError, OrdersError) as error:
        say(f"{path} does not say what to hold the run to, so it is not started: {error}.")
        return USAGE
    rank = os.environ.get("SKYPILOT_NODE_RANK") or os.environ.get("NODE_RANK") or "0"
    out = os.environ.get("GPUPLAN_OUT")
    if rank == "0" and not out:
        say("GPUPLAN_OUT names no folder of results, so the run is not started.")
        return USAGE
    return Guard(orders, arguments[2:], Path(out) if rank == "0" and out else None).run()


def at_place(orders: Orders) -> Orders:
    """Return the orders as they hold on this machine: at its price."""
    cloud, region, zone = place()
    asked = orders.spot_usd_per_hour_at or orders.hand_over is not None or orders.notices
    bought = market(cloud) if asked else None
    orders = orders.at(cloud, region, zone, is_spot=bought == SPOT)
    return replace(orders, hand_over=None, notices=False) if bought == ON_DEMAND else orders


def place() -> tuple[str, str, str]:
    """Return cloud, region and zone of this node as SkyPilot says them, empty where it does not."""
    try:
        told = json.loads(os.environ.get("SKYPILOT_CLUSTER_INFO", ""))
        cloud, region, zone = (str(told.get(one) or "") for one in ("cloud", "region", "zone"))
        return cloud, region, zone
    except (ValueError, AttributeError):
        return "", "", ""


class Guard:
    """One attempt on one node."""

    def __init__(
        self,
        orders: Orders,
        words: Sequence[str],
        out: Path | None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the account.

        Args:
            orders: what the run is held to.
            words: the command.
            out: the folder of results; None on other nodes than the first.
            wall_clock: seconds since 1970; read once, as clocks may be set during a run.
        """
        # The first node alone sees how far the run is.
        self._orders = orders = orders if out else replace(orders, hand_over=None)
        self._out = out
        self._stop_file = Path(os.path.expanduser(orders.stop_file))
        self._looking, self._is_wished = OneAtATime(), False
        self._command = Command(words, orders.grace_s)
        self._signal: int | None = None
        self._attempts: list[Attempt] = []
        self._is_whole = True
        self._watch: Watch | None = None
        self._notices = Notices(place()[0]) if orders.notices else None
        self._running_s = stopwatch()
        self._command_from_s: float | None = None
        if out is not None:
            self._open_books(out)
        now_s = wall_clock()
        self._account = open_account(
            orders,
            self._attempts,
            boot_s=boot_s(),
            now_s=now_s,
            setup_s=setup_s(),
            whole=self._is_whole,
        )
        self._paid_before_s = now_s - self._account.began_at_s - self._running_s()
        lag_s = orders.grace_s + orders.poll_s if out is None else 0.0
        self._session = Session(orders, self._account, lag_s=lag_s)

    def run(self) -> int:
        """Run until the command has ended; return the exit code."""
        before = {
            number: signal.signal(number, self._on_signal)
            for number in PASSED_ON
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            ended = self._ended_before()
            if ended is not None:
                return ended
            if self._tick(Reading()) is None:
                self._begin()
                code = self._wait()
            else:
                code = 0
            ended = self._finish(code)
            self._let_others_upload()
            return ended
        finally:
            self._command.close()
            if self._out is not None:
                within(FLUSH_TIMEOUT_S, self._forget_wish)
            for number, old in before.items():
                signal.signal(number, old)

    def _ended_before(self) -> int | None:
        """Return the exit code of a task that follows one after which nothing is left to do."""
        own = [one for one in self._attempts if one.requested_at_s == self._orders.requested_at_s]
        verdict = own[-1].verdict if own and stage() == ON_DEMAND else None
        if verdict is None or verdict.get("why") in GOES_ON:
            return None
        say(f"the run has ended already: {verdict.get('text')}")
        self._say_last({**self._state(own[-1].step, None), "verdict": verdict})
        # Not 0, so that SkyPilot ends the other nodes too, which wait for this one.
        return int(verdict.get("exit_code") or OVER)

    def _begin(self) -> None:
        if self._account.before_usd > 0:
            say(
                f"attempt {self._account.attempt} of this run;"
                f" ${self._account.before_usd:,.2f} were spent before it"
            )
        planned = self._orders.network
        if planned is not None and planned.interfaces is not None:
            less = shortfall(planned, NetworkSeen(interfaces=count_interfaces()))
            if less is not None:
                say(less)
        self._command_from_s = self._running_s()
        problem = self._command.start()
        if problem is not None:
            say(problem)
        if self._watch is not None:
            self._watch.start()
        if self._notices is not None:
            self._notices.start()

    def _wait(self) -> int:
        while True:
            code = self._command.wait(self._orders.poll_s)
            if code is not None:
                return code
            reading = Reading() if self._watch is None else self._watch.reading
            action = self._tick(reading)
            if action == ASK:
                self._command.ask_to_stop(by_file=self._by_file(reading))
            elif action == KILL:
                self._command.kill()
            elif action == LEAVE:
                within(FLUSH_TIMEOUT_S, stuck.note)
                return -signal.SIGKILL

    def _tick(self, reading: Reading) -> str | None:
        had = self._session.projection
        action = self._session.tick(
            paid_s=self._paid_s(),
            running_s=self._running_s(),
            reading=reading,
            stop_asked=self._stop_asked(),
            signal_number=self._signal,
            notice=None if self._notices is None else self._notices.seen,
        )
        verdict, projection = self._session.verdict, self._session.projection
        if projection is not None and projection is not had:
            say(projection.text)
        if action is not None and verdict is not None:
            say(f"stopping: {verdict.text}" if action == ASK else verdict.text)
        if self._watch is not None:
            self._watch.state = self._state(reading.step, None)
        return action

    def _stop_asked(self) -> bool:
        """Return whether the user wants the run to stop, as far as the disk says it."""

        def look() -> None:
            self._is_wished = self._stop_file.exists()

        if self._out is not None:
            self._looking.within(LOOK_WITHIN_S, look)
        return self._is_wished

    def _by_file(self, reading: Reading) -> bool:
        """Return whether the runner polls the stop file; on other nodes that is assumed."""
        return self._orders.own_runner and (self._out is None or reading.trained > 0)

    def _finish(self, code: int) -> int:
        from_s = self._command_from_s
        command_s = 0.0 if from_s is None else self._running_s() - from_s
        reading = Reading() if self._watch is None else self._watch.finish(FLUSH_TIMEOUT_S)
        paid_s = self._paid_s()
        verdict = self._session.ended(
            code,
            paid_s=paid_s,
            reading=reading,
            loss_is_bad=self._loss_is_bad(),
            # The other nodes leave it to the first to say how a run ended.
            stopped_elsewhere=self._out is not None and self._command.was_stopped_elsewhere(),
        )
        if self._out is None:
            return self._exit_code(verdict, code)
        if self._watch is not None:
            self._close_books(self._out, reading.step, verdict, paid_s)
        self._tell_record(self._out)
        say(verdict.text)
        ended = {"command_code": code, "command_s": command_s}
        self._say_last({**self._state(reading.step, verdict, paid_s), **ended})
        return self._exit_code(verdict, code)

    def _let_others_upload(self) -> None:
        """Wait until a machine goes of which there is a notice: SkyPilot kills nodes with it."""
        verdict, notices = self._session.verdict, self._notices
        if notices is not None and verdict is not None and verdict.why == NOTICE:
            while self._orders.others_upload and notices.left_s > 0:
                time.sleep(min(self._orders.poll_s, notices.left_s))

    def _say_last(self, state: dict) -> None:
        _print(f"gpuplan-guard: {json.dumps(state)}", FLUSH_TIMEOUT_S)

    def _tell_record(self, out: Path) -> None:
        """Put the run record into the log, which is read where the folder is not."""
        found: list[str] = []
        within(FLUSH_TIMEOUT_S, lambda: found.append(folder.run_record(out, self._orders.run_id)))
        if found and found[0]:
            _print(f"gpuplan-record: {found[0]}", FLUSH_TIMEOUT_S)

    def _exit_code(self, verdict: Verdict, code: int) -> int:
        in_good_order = code == 0 and verdict.exit_code in (0, STOPPED)
        if in_good_order and self._orders.others_upload:
            return 0
        is_over = verdict.exit_code == 0 and verdict.why != HAND_OVER
        return OVER if is_over and stage() == SPOT and self._out else verdict.exit_code

    def _open_books(self, out: Path) -> None:
        """Read what attempts before this one left, and give each that died its line."""

        def read() -> None:
            attempts = folder.read_attempts(out)
            self._is_whole = not folder.is_damaged(out)
            folder.write_attempts(out, attempts)
            folder.clear(out)
            self._attempts = attempts
            self._watch = Watch(self._orders, out, self._running_s, say)

        problem = within(READ_TIMEOUT_S, read)
        if problem is not None:
            # Nothing is written there then: it would take the place of what could not be read.
            self._is_whole = False
            say(f"{out} cannot be used, so only the limits on time and cost are held: {problem}")
        if not self._is_whole:
            say("what earlier attempts took is not known: all counts since it was asked for")

    def _close_books(self, out: Path, step: int | None, verdict: Verdict, paid_s: float) -> None:
        ended = self._account.so_far(paid_s, step, verdict.to_dict())

        def write() -> None:
            folder.write_attempts(out, [*self._attempts, ended])
            folder.write_state(out, self._state(step, verdict, paid_s))

        problem = within(FLUSH_TIMEOUT_S, write)
        if problem is not None:
            say(f"how the run ended could not be written to {out}: {problem}")

    def _state(
        self, step: int | None, verdict: Verdict | None, paid_s: float | None = None
    ) -> dict:
        return folder.state(
            self._orders,
            self._account,
            paid_s=self._paid_s() if paid_s is None else paid_s,
            step=step,
            projection=self._session.projection,
            verdict=verdict,
            network=None
            if self._watch is None
            else shortfall(self._orders.network, self._watch.reading.network),
        )

    def _loss_is_bad(self) -> bool:
        found: list[bool] = []
        out = self._out
        if out is not None:
            within(FLUSH_TIMEOUT_S, lambda: found.append(folder.loss_is_bad(out)))
        return any(found)

    def _forget_wish(self) -> None:
        """Remove the stop file: it was for this attempt."""
        if self._stop_file.exists():
            self._stop_file.unlink()

    def _paid_s(self) -> float:
        return self._paid_before_s + self._running_s()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Note the first signal; the next tick, at most a poll away, passes it on."""
        if self._signal is None:
            self._signal = number


def say(text: str) -> None:
    """Print one line for the user."""
    _print(f"gpuplan: {text}", SAY_WITHIN_S)


_PRINTING = OneAtATime()


def _print(line: str, within_s: float) -> None:
    """Print a line; without it where nobody reads on, as limits hold then too."""

    def write() -> None:
        with contextlib.suppress(OSError, ValueError):
            _write(f"{line}\n")

    _PRINTING.within(within_s, write, after_earlier=True)


def _write(text: str) -> None:
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        sys.stdout.write(text)
        return
    # Not through the buffer of sys.stdout: a thread that waits there keeps Python from ending.
    left = text.encode()
    while left:
        left = left[os.write(number, left) :]
