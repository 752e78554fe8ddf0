"""Whose code is running: the frames that called into torch, from the innermost outwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import FrameType

TRACE = f"{__name__.rsplit('.', 1)[0]}.trace"
"""The module that calls the functions of a file."""


def calling_frame(passing: Sequence[str] = ("transformers",)) -> FrameType | None:
    """Return the innermost frame that is neither torch nor ours: the code that asked.

    Args:
        passing: Libraries whose frames are passed over too.
    """
    return next(calling_frames(passing), None)


def calling_frames(passing: Sequence[str]) -> Iterator[FrameType]:
    """Yield the frames that are neither torch nor ours, from the innermost outwards.

    What called the trace is none of the file's code.

    Args:
        passing: Libraries whose frames are passed over too.
    """
    frame, found = sys._getframe(1), False
    while frame is not None:
        # A module that Python was started with calls itself "__main__"; its spec has its name.
        spec = frame.f_globals.get("__spec__")
        module = str(frame.f_globals.get("__name__", "") if spec is None else spec.name)
        if found and module == TRACE:
            return
        top = module.split(".")[0]
        ours = top == __name__.split(".")[0] and not module.startswith(f"{top}.examples")
        if top not in ("torch", "contextlib", "runpy", *passing) and not ours:
            found = True
            yield frame
        frame = frame.f_back


def calling_modules(depth: int = 12) -> set[str]:
    """Return the names of the modules whose functions are running, innermost `depth` frames."""
    names: set[str] = set()
    frame = sys._getframe(1)
    for _ in range(depth):
        if frame is None:
            break
        names.add(str(frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    return names


def is_called_by(module: str, function: str, depth: int = 12) -> bool:
    """Return whether a function of this name runs among the innermost `depth` frames."""
    frame = sys._getframe(1)
    for _ in range(depth):
        if frame is None:
            return False
        if frame.f_code.co_name == function and frame.f_globals.get("__name__") == module:
            return True
        frame = frame.f_back
    return False
