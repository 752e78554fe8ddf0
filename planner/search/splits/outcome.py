"""What a search of layouts that split the model comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..found import Found


class Asked(NamedTuple):
    """A number of nodes whose best layouts are asked for."""

    nodes: int
    bound_s: float
    """Step time that they have to be shorter than: that of the best that splits only the data."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of the candidates of some nodes."""

    found: tuple[Found, ...]
    """The fastest, and the fastest that gpuplan's runner runs, if it is another."""
    fitting: int
    out_of_memory: int
    indivisible: int
    timed: int
    """Of those that fit, how many had to be timed: the others are slower than what is known."""
