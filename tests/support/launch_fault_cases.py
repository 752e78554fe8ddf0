"""The cases of the fault matrix of launches: one fault at one step of one command."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, get_args

HOUR_S = 3600.0
Command = Literal["launch", "resume", "stop", "down", "reconcile", "follow"]
Fault = Literal[
    "kill -9",
    "Ctrl-C",
    "hang, then Ctrl-C",
    "call lost",
    "answer lost",
    "server away",
    "no capacity",
    "nodes without capacity",
    "start fails",
    "machines taken",
    "clock set back",
    "clock set forward",
    "down beside it",
    "reconcile beside it",
    "resume beside it",
    "full disk",
    "read-only folder",
    "own row torn",
    "other row torn",
    "stale lock",
]
COMMANDS: tuple[Command, ...] = get_args(Command)
FAULTS: tuple[Fault, ...] = get_args(Fault)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One fault at one step of one command."""

    number: int
    command: Command
    fault: Fault
    at: float
    """Which of the command's steps, as a share of all."""
    managed: bool
    nodes: int
    server_goes_on: bool
    """Whether what was asked is done before anybody looks again."""
    away_s: float
    """Until somebody looks again."""

    def __str__(self) -> str:
        how = "managed" if self.managed else f"{self.nodes} nodes"
        return f"{self.number}: {self.fault} at {self.at:.0%} of {self.command}, {how}"


def cases(seed: int, count: int) -> list[Case]:
    """Return so many cases, which a seed draws; every fault meets every command in turn."""
    chosen = random.Random(seed)
    found: list[Case] = []
    pairs: list[tuple[Command, Fault]] = [
        (command, fault) for fault in FAULTS for command in COMMANDS
    ]
    while len(found) < count:
        chosen.shuffle(pairs)
        for command, fault in pairs[: count - len(found)]:
            managed = chosen.random() < 0.3 and fault not in ("own row torn", "start fails")
            found.append(
                Case(
                    number=len(found),
                    command=command,
                    fault=fault,
                    at=chosen.random(),
                    managed=managed and "capacity" not in fault,
                    nodes=chosen.choice((1, 2, 8)),
                    server_goes_on=chosen.random() < 0.5,
                    away_s=chosen.choice((0.0, 120.0, 30 * HOUR_S)),
                )
            )
    return found
