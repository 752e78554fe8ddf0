"""A guard that a fault ends, and what its next attempt must count."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from guards import WITHIN_S, Node, told

GuardFault = Literal[
    "kill -9",
    "SIGTERM",
    "Ctrl-C",
    "state torn",
    "state gone",
    "attempts torn",
    "state is a folder",
    "disk full for the state",
]
GUARD_FAULTS: tuple[GuardFault, ...] = get_args(GuardFault)
RUN_S = 1.2
"""The longest that an attempt runs before the fault."""
SLACK_S = 0.5
"""What the guard may not have counted: one poll, and what it had not written."""
TRAINER = """
trap "touch $GPUPLAN_OUT/saved; exit 0" TERM
touch $GPUPLAN_OUT/begun
while :; do sleep 0.05; done
"""


@dataclass(frozen=True, kw_only=True)
class GuardCase:
    """One fault of a guard that runs."""

    number: int
    fault: GuardFault
    after_s: float

    def __str__(self) -> str:
        return f"{self.number}: {self.fault} {self.after_s:.2f} s into a guard"


def guard_cases(seed: int, count: int) -> list[GuardCase]:
    """Return so many cases, which a seed draws; every fault in turn."""
    chosen = random.Random(seed)
    return [
        GuardCase(
            number=number,
            fault=GUARD_FAULTS[number % len(GUARD_FAULTS)],
            after_s=chosen.uniform(0.0, RUN_S),
        )
        for number in range(count)
    ]


def play_guard(case: GuardCase, folder: Path) -> list[str]:
    """Return what is wrong after a guard was hit and begun again; nothing, where all is well."""
    node = Node(folder)
    began_s = time.time()
    node.orders(requested_at_s=began_s, max_cost_usd=10 * WITHIN_S)
    if case.fault == "disk full for the state":
        (node.out / "guard-state.json.new").mkdir()  # What is to be written has no place.
    guard = node.start("sh", "-c", TRAINER)
    begun = [node.out / "begun"]  # Before that no trainer could save, and none of it is lost.
    if case.fault != "disk full for the state":
        begun.append(node.out / "guard-state.json")
    _wait(lambda: guard.poll() is not None or all(one.exists() for one in begun))
    time.sleep(case.after_s)
    problems: list[str] = []
    number = {"SIGTERM": signal.SIGTERM, "Ctrl-C": signal.SIGINT}.get(case.fault, signal.SIGKILL)
    guard.send_signal(number)
    said, complained = guard.communicate(timeout=WITHIN_S)
    if "Traceback" in said + complained:
        problems.append(f"traceback: {complained[-500:]}")
    if not _wait(lambda: (node.out / "saved").exists()):
        problems.append("the trainer was not asked to save a checkpoint")
    _damage(case.fault, node)
    paid_s = time.time() - began_s
    second = node.run("true")
    if "Traceback" in second.stdout + second.stderr:
        problems.append(f"traceback: {second.stderr[-500:]}")
    spent_usd = told(second.stdout)["spent_usd"]
    if spent_usd < paid_s - SLACK_S:
        problems.append(f"${paid_s - spent_usd:.2f} of ${paid_s:.2f} unaccounted")
    return problems


def _damage(fault: GuardFault, node: Node) -> None:
    state, attempts = node.out / "guard-state.json", node.out / "guard-attempts.jsonl"
    if fault == "state torn":
        state.write_text(state.read_text()[:40])
    elif fault == "state gone":
        state.unlink(missing_ok=True)
    elif fault == "state is a folder":
        state.unlink(missing_ok=True)
        state.mkdir()
    elif fault == "attempts torn":
        attempts.write_text(json.dumps({"attempt": 1})[:-4] + "\n")
    elif fault == "disk full for the state":
        shutil.rmtree(node.out / "guard-state.json.new", ignore_errors=True)


def _wait(true: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + WITHIN_S
    while not true():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.02)
    return True
