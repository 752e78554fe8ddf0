"""The thread that reads and writes the folder of results.

That folder may be a bucket or a disk on a network, where reading can take for ever. The clock that
holds the limits never waits for it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import folder
from .decisions.verdicts import Reading
from .node.network import count_interfaces, read_network
from .node.readings import HEARTBEATS, METRICS_FILE, Devices, Heartbeats, Metrics
from .orders import Orders, ProjectionOrders


class Watch:
    """Reads every poll, and keeps the state file fresh."""

    def __init__(
        self, orders: Orders, out: Path, clock: Callable[[], float], say: Callable[[str], None]
    ) -> None:
        """Look at what is there already, which is of attempts before.

        Args:
            orders: what is asked for.
            out: the folder of results.
            clock: seconds since the command was started.
            say: prints one line for the user.
        """
        # Own names, as both count nothing where no projection is asked for.
        wanted = orders.projection or ProjectionOrders(total_steps=0)
        self._orders = orders
        self._out = out
        self._clock = clock
        self._say = say
        self._metrics = Metrics(out / METRICS_FILE, steps=wanted.steps, settled=wanted.settled)
        self._heartbeats = Heartbeats(out / HEARTBEATS)
        busy = orders.min_gpu_utilization
        self._devices = None if busy is None else Devices(busy)
        counted = orders.network is not None and orders.network.interfaces is not None
        self._interfaces = count_interfaces() if counted else None
        self._over = threading.Event()
        self._problem = ""
        self._wrote_s = -math.inf
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.reading = Reading()
        """The last; replaced as a whole."""
        self.state: Mapping[str, Any] | None = None
        """What is to be written next."""

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def finish(self, within_s: float) -> Reading:
        """Read once more and end; return the last reading, whether that worked or not."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(within_s)
        return self.reading

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._over.wait(self._orders.poll_s)
            try:
                self._read()
                self._write()
                self._problem = ""
            except Exception as error:
                # Whatever it is, the next look may succeed, and the clock goes on meanwhile.
                self._tell(f"{self._out} cannot be used: {error}")

    def _read(self) -> None:
        now_s = self._clock()
        metrics, beats = self._metrics, self._heartbeats
        busy = None if self._devices is None else self._devices.read(now_s)
        metrics.read(now_s)
        beats.read(now_s)
        alive = [one for one in (metrics.new_at_s, beats.new_at_s) if one is not None]
        self.reading = Reading(
            step=metrics.step,
            saved_step=0 if self._orders.hand_over is None else folder.saved_step(self._out),
            trained=metrics.trained,
            times_s=tuple(metrics.times_s),
            settled=metrics.settled,
            checkpoint_s=metrics.checkpoint_s,
            loss_bad_since_s=metrics.loss_bad_since_s,
            alive_at_s=max(alive, default=None),
            busy=busy,
            network=read_network(self._out, self._interfaces),
        )

    def _write(self) -> None:
        now_s = self._clock()
        if self.state is not None and now_s - self._wrote_s >= self._orders.state_every_s:
            self._wrote_s = now_s
            folder.write_state(self._out, self.state)

    def _tell(self, problem: str) -> None:
        """Say what is wrong, once until it is another thing."""
        if problem != self._problem:
            self._problem = problem
            self._say(problem)


def stopwatch(clock: Callable[[], float] = time.monotonic) -> Callable[[], float]:
    """Return a clock that begins at zero."""
    began_s = clock()
    return lambda: clock() - began_s
