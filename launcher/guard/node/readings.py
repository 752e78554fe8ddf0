"""What can be seen of a run from its node: metrics, heartbeats, devices, the age of the machine."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..orders import Busy
from .processes import run_within
from .stuck import FOLDER

METRICS_FILE = "metrics.jsonl"
HEARTBEATS = "heartbeats"
TIMER_STATE = "state.json"
"""In the timer's folder: what it has counted."""
AT_ONCE_BYTES = 4 * 2**20
DEVICES_EVERY_S = 15.0
DEVICES_WITHIN_S = 8.0
DEVICES = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


class Metrics:
    """The lines that are appended to `metrics.jsonl` from now on: those of this attempt."""

    def __init__(self, path: Path, *, steps: int, settled: int) -> None:
        """Begin behind what earlier attempts wrote.

        Args:
            path: one JSON object a line, with `step`, `step_time_s`, `loss` and
                `checkpoint_write_s`, all but the first optional; whoever writes it.
            steps: how many step times are kept.
            settled: how many at the start do not count.
        """
        self._path = path
        self._settled_after = settled
        self._at = _size(path)
        self._rest = b""
        self.step: int | None = None
        self.trained = 0
        self.times_s: deque[float] = deque(maxlen=steps)
        self.settled = 0
        self.checkpoint_s: float | None = None
        self.loss_bad_since_s: float | None = None
        self.new_at_s: float | None = None

    def read(self, now_s: float) -> None:
        """Take in what is new.

        Raises:
            OSError: the file is there and cannot be read.
        """
        if _size(self._path) < self._at:
            self._at, self._rest = 0, b""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._at)
                new = stream.read(AT_ONCE_BYTES)
        except FileNotFoundError:
            return
        self._at += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            self._take(line, now_s)

    def _take(self, line: bytes, now_s: float) -> None:
        values = _object(line)
        step = _number(values.get("step"))
        if step is None:
            return
        self.step = int(step)
        self.trained += 1
        self.new_at_s = now_s
        time_s = _number(values.get("step_time_s"))
        if time_s is not None and time_s > 0 and self.trained > self._settled_after:
            self.times_s.append(time_s)
            self.settled += 1
        written_s = _number(values.get("checkpoint_write_s"))
        if written_s is not None and written_s > 0:
            self.checkpoint_s = max(self.checkpoint_s or 0.0, written_s)
        if "loss" in values:
            is_bad = _number(values["loss"]) is None
            since_s = self.loss_bad_since_s
            self.loss_bad_since_s = (now_s if since_s is None else since_s) if is_bad else None


class Heartbeats:
    """When any process of the run last said that it lives.

    The newest of all files counts: processes train in step, so that one that hangs stops them all,
    and a bucket shows what other nodes wrote only later. What the files say is not read, as each
    node has a clock of its own; that they change is enough.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._signatures()
        self.new_at_s: float | None = None

    def read(self, now_s: float) -> None:
        """Look at all files.

        Raises:
            OSError: the folder cannot be read.
        """
        found = self._signatures()
        if any(self._seen.get(name) != one for name, one in found.items()):
            self.new_at_s = now_s
        self._seen = found

    def _signatures(self) -> dict[str, tuple[int, int, bytes]]:
        found = {}
        for path in self._folder.glob("rank-*"):
            try:
                stat = path.stat()
                found[path.name] = (stat.st_mtime_ns, stat.st_size, path.read_bytes()[:4096])
            except FileNotFoundError:
                continue
        return found


class Devices:
    """How busy the devices of this node are, as nvidia-smi says.

    busy = mean over the readings of the last `for_s` of the mean over the devices
    """

    def __init__(self, wanted: Busy, ask: Callable[[], float | None] | None = None) -> None:
        self._wanted = wanted
        self._ask = ask or devices_busy
        self._began_s: float | None = None
        self._readings: deque[tuple[float, float]] = deque()
        self._asked_s = -math.inf

    def read(self, now_s: float) -> float | None:
        """Return how busy they were; None before that is known for long enough."""
        if now_s - self._asked_s >= DEVICES_EVERY_S:
            self._asked_s = now_s
            busy = self._ask()
            if busy is not None:
                self._began_s = now_s if self._began_s is None else self._began_s
                self._readings.append((now_s, busy))
        while self._readings and self._readings[0][0] < now_s - self._wanted.for_s:
            self._readings.popleft()
        if self._began_s is None or now_s - self._began_s < self._wanted.for_s:
            return None
        if not self._readings:
            return None
        return sum(busy for _, busy in self._readings) / len(self._readings)


def devices_busy() -> float | None:
    """Return how busy the devices are now, as a fraction; None where it is not known."""
    try:
        code, said = run_within(DEVICES, DEVICES_WITHIN_S)
        shares = [float(line) / 100 for line in said.decode().splitlines()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if code != 0:
        return None
    return sum(shares) / len(shares) if shares else None


def boot_s(stat: Path = Path("/proc/stat")) -> float | None:
    """Return when this machine came up, seconds since 1970; None where it is not known."""
    try:
        for line in stat.read_text().splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return None


def setup_s(home: Path | None = None) -> float | None:
    """Return when set-up of this machine began, as its timer has counted; None: not known.

    Args:
        home: the folder of what the timer leaves.
    """
    state = (home or Path(os.path.expanduser("~")) / FOLDER) / TIMER_STATE
    try:
        used_s = json.loads(state.read_text(encoding="utf-8"))["used_s"]
        return state.stat().st_mtime - float(used_s)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _object(line: bytes) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None
