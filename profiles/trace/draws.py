"""Random numbers of the host: every traced step draws the same ones, and says that it drew.

What they decide (self-conditioning, a layer that is left out) is the same at both sizes then, and
the same in two traces of a file.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from .torch_private import no_torch_function

SEED = 0
PYTHON, NUMPY, TORCH = "Python's random", "numpy.random", "torch's generator of the CPU"


@contextmanager
def drawing_alike() -> Iterator[None]:
    """Begin the generators of the host at one seed, and leave them as they were."""
    ours = random.getstate()
    torchs = torch.default_generator.get_state()
    numpy = _numpy_random()
    numpys = numpy.get_state() if numpy else None
    random.seed(SEED)
    torch.default_generator.manual_seed(SEED)
    if numpy:
        numpy.seed(SEED)
    try:
        yield
    finally:
        random.setstate(ours)
        torch.default_generator.set_state(torchs)
        if numpy:
            numpy.set_state(numpys)


def states() -> Mapping[str, Any]:
    """Return where each generator of the host stands."""
    with no_torch_function():
        torchs = torch.default_generator.get_state().numpy().tobytes()
    found: dict[str, Any] = {PYTHON: random.getstate(), TORCH: torchs}
    numpy = _numpy_random()
    if numpy:
        _name, keys, *rest = numpy.get_state()
        found[NUMPY] = keys.tobytes(), *rest
    return found


def drawn_since(before: Mapping[str, Any]) -> list[str]:
    """Return which generators gave numbers since; one that was not there then is left out."""
    now = states()
    return [name for name, state in before.items() if now[name] != state]


def draw_note(file: str, generator: str) -> str:
    """Return what a person should know of a step that draws, of this file, from a generator."""
    return (
        f"{file} draws from {generator} in its step: where that decides what is done, it was"
        " traced as it fell once, the same in every trace, and not on average. Force it in the file"
        " to see what each way takes"
    )


def _numpy_random() -> Any:
    return sys.modules.get("numpy.random")
