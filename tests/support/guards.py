"""Guards as tests make them: orders, accounts, and the guard itself as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from shortened import shorten

from gpuplan.launcher.bundle import GUARD, ORDERS_FILE, write_guard, write_orders
from gpuplan.launcher.guard.decisions.spending import Account, open_account
from gpuplan.launcher.guard.orders import Orders, ProjectionOrders

HOUR_S = 3600.0
NOW_S = 1_800_000_000.0
WITHIN_S = 60
STEP = ProjectionOrders(total_steps=1000, expected_usd=10.0, low_usd=8.0, high_usd=12.0)


def make_orders(**changes: Any) -> Orders:
    """Return orders of a run that costs a dollar a second."""
    orders = Orders(run_id="net-1", usd_per_hour=HOUR_S, requested_at_s=NOW_S)
    return replace(orders, **changes)


def make_account(orders: Orders, *, before_s: float = 0.0) -> Account:
    """Return the account of an attempt on a machine that came up when it was asked for."""
    return open_account(orders, [], boot_s=NOW_S, now_s=NOW_S + before_s)


class Node:
    """A home with a guard in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.job = home / "job"
        self.out = home / "out"
        self.stop_file = home / "stop"
        self.out.mkdir(parents=True)
        write_guard(self.job)

    def orders(self, **changes: Any) -> None:
        """Write its orders: a dollar a second, quick polls."""
        facts = {"poll_s": 0.1, "state_every_s": 0.1, "stop_file": str(self.stop_file)}
        write_orders(self.job, make_orders(**{**facts, **changes}))

    def be_impatient(self) -> None:
        """Let it wait a second, not five or fifteen, for each thing that may hang."""
        shorten(self.job, SAY_WITHIN_S=1.0, FLUSH_TIMEOUT_S=1.0)

    def start(
        self, *words: str, python: str = sys.executable, rank: int = 0, **variables: str
    ) -> subprocess.Popen[str]:
        """Start the guard with nothing of gpuplan in reach."""
        return subprocess.Popen(
            [
                *(python, "-E", "-S", str(self.job / GUARD), str(self.job / ORDERS_FILE)),
                *("--", *words),
            ],
            cwd=self.home,
            env={
                **{"PATH": "/usr/bin:/bin", "HOME": str(self.home), "GPUPLAN_OUT": str(self.out)},
                **{"SKYPILOT_NODE_RANK": str(rank), **variables},
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **given: Any) -> subprocess.CompletedProcess[str]:
        """Run the guard to its end."""
        process = self.start(*words, **given)
        out, err = process.communicate(timeout=WITHIN_S)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    @property
    def state(self) -> dict[str, Any]:
        """Return the state that it left."""
        return json.loads((self.out / "guard-state.json").read_text())

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """Return the lines of ended attempts."""
        text = (self.out / "guard-attempts.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


def told(said: str) -> dict[str, Any]:
    """Return what the guard's last line says."""
    name, _, values = said.splitlines()[-1].partition(": ")
    assert name == "gpuplan-guard"
    return json.loads(values)
