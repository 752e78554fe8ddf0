"""The processes that measure: one at a time, ended when a case is late or left something behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .cases import Case

BENCHMARKS = Path(__file__).resolve().parents[1]
CASE_LIMIT_S = 300.0
START_LIMIT_S = 120.0


class EvidenceError(Exception):
    """Something that the person at the keyboard must change; the message says what and how."""


class Workers:
    """One worker process at a time; a new one after a case that left something behind."""

    def __init__(self, device: str, measure_s: float, *, fresh: bool) -> None:
        self._command = [sys.executable, "-P", "-m", "evidence.worker", "--device", device]
        self._command += ["--measure-s", str(measure_s)]
        self._fresh = fresh
        self._process: subprocess.Popen[str] | None = None
        self.environment: dict[str, Any] = {}
        self._start()

    def run(self, case: Case, limit_s: float) -> dict[str, Any]:
        """Return the outcome of a case; "no time" if it took longer than the limit."""
        until_s = time.perf_counter() + limit_s
        if self._process is None:
            self._start()
        answer = self._ask(case.to_json(), until_s - time.perf_counter())
        if answer is None:
            late = time.perf_counter() >= until_s
            self.stop()
            error = f"stopped after {limit_s:.0f} s" if late else "its process died"
            kind = "no time" if late and limit_s < CASE_LIMIT_S else "failed"
            return {"kind": kind, "error": error, "measured": {}, "facts": {}}
        if self._fresh or not answer["clean"]:
            self.stop()
        return answer

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self) -> None:
        path = os.pathsep.join(filter(None, [str(BENCHMARKS), os.environ.get("PYTHONPATH")]))
        # The driver's tool counts devices in this order.
        environment = {**os.environ, "PYTHONPATH": path, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        hello = self._ask(None, START_LIMIT_S)
        if hello is None:
            self.stop()
            raise EvidenceError(
                "the measuring process did not start (its message is above); it needs torch and a"
                " CUDA device, or --device cpu to try the command without one"
            )
        self.environment = hello

    def _ask(self, line: str | None, limit_s: float) -> dict[str, Any] | None:
        """Return the next answer, or None if the process ended or was too slow."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        timer = threading.Timer(max(0.0, limit_s), process.kill)
        timer.start()
        try:
            if line is not None:
                process.stdin.write(f"{line}\n")
                process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            timer.cancel()
        return json.loads(answer) if answer.endswith("\n") else None


@contextmanager
def workers(device: str, measure_s: float, *, fresh: bool) -> Iterator[Workers]:
    """Yield the worker processes; none is left afterwards."""
    pool = Workers(device, measure_s, fresh=fresh)
    try:
        yield pool
    finally:
        pool.stop()
