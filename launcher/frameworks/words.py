"""Words of a command: text that is known now, and facts that only the machine knows at run time."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Fact(StrEnum):
    """A value that is filled in where the line runs."""

    MAIN_ADDRESS = "main_address"
    """Address of the first node."""
    PORT = "port"
    """The port on the first node where all meet."""
    NODE_RANK = "node_rank"
    CONFIG = "config"
    """Folder of the files that come with the launch."""
    HOST_SLOTS = "host_slots"
    """`10.0.0.1:8,10.0.0.2:8`, as MPI and Horovod name hosts."""
    HOSTFILE = "hostfile"
    """`10.0.0.1 slots=8`, one node a line."""
    WORKERS = "workers"
    """`"10.0.0.1:29500","10.0.0.2:29500"`: addresses as a JSON list has them."""
    PYTHON = "python"
    """The interpreter that runs the user's script."""


Word = str | Fact | tuple[str | Fact, ...]
"""One word of a command, one value of a variable, or the text of one file."""


def fill(word: Word, values: Mapping[Fact, str]) -> str:
    """Return a word as text, with every fact as `values` has it."""
    if isinstance(word, Fact):
        return values[word]
    if isinstance(word, str):
        return word
    return "".join(fill(part, values) for part in word)
