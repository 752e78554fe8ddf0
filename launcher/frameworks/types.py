"""What a launch is: a job, the program that starts it, its variables, files and notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...planner.plan.plan import Plan
from .command import Target
from .words import Word

Framework = Literal[
    "torchrun", "accelerate", "deepspeed", "lightning", "horovod", "jax", "tensorflow", "none"
]
FRAMEWORKS: tuple[Framework, ...] = (
    "torchrun",
    "accelerate",
    "deepspeed",
    "lightning",
    "horovod",
    "jax",
    "tensorflow",
    "none",
)
Device = Literal["gpu", "cpu"]
"""What the processes compute on."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """What is started: a command of the node, and the module that is the same thing in Python.

    On a node the command is looked up on PATH. Here the module is run by this very Python, so that
    what is found is what this environment has.
    """

    command: tuple[str, ...]
    module: str | None = None
    package: str | None = None
    """What to `pip install` where the program is missing."""


PYTHON = Program(command=("python3",), module="")
"""Python itself: no module."""


@dataclass(frozen=True, kw_only=True)
class ScriptJob:
    """What is to be launched, and on how much."""

    plan: Plan | None
    """The plan that is carried out; None leaves everything to the script."""
    target: Target
    nodes: int
    per_node: int
    """Accelerators (or processor shares) on each node."""
    device: Device = "gpu"

    @property
    def processes(self) -> int:
        """How many ranks there are on all nodes."""
        return self.nodes * self.per_node


@dataclass(frozen=True)
class Way:
    """One way to start the job."""

    program: Program
    arguments: tuple[Word, ...]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a framework adds to a launch."""

    ways: tuple[Way, ...]
    """The first whose program is there is taken."""
    environment: Mapping[str, Word] = field(default_factory=dict)
    files: Mapping[str, Word] = field(default_factory=dict)
    """Text of each file that lies in the folder `Fact.CONFIG`."""
    first_node_only: bool = False
    """Whether the program starts the processes of the other nodes itself, over SSH."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FrameworkLaunch(Parts):
    """How to start the user's command under a framework, on every node or on this machine.

    `environment` is set on every node before the program starts; `notes` say, for people to read,
    what the user's script must do itself for the plan to hold.
    """

    framework: Framework
    job: ScriptJob
