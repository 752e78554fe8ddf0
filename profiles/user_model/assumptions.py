"""What the user says of values that a trace does not know: conditions and sizes, line by line.

Standard library only, as `spec`: the command line reads it before torch is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ...catalog.errors import UsageError

SizeKind = Literal["number", "per sample", "share"]
_PLACE = re.compile(r"(?P<file>.+\.py):(?P<line>[1-9]\d*)")
_SIZE = re.compile(r"(?P<number>\d+)(?P<each>/sample)?|(?P<share>\d+(\.\d+)?)\s*%")
_FORMS = "a whole number (64), a number for each sample (64/sample), or a share (50%)"


@dataclass(frozen=True, kw_only=True)
class AssumedSize:
    """How many values an operation finds: a number, a number per sample, or a share of them."""

    value: float
    kind: SizeKind

    def of(self, available: int | None, batch_size: int | None) -> int | None:
        """Return the size; None where it needs what is not known here.

        Args:
            available: How many values are looked at; None where they are not counted.
            batch_size: Samples in the batch; None while the model is built.
        """
        if self.kind == "number":
            return round(self.value)
        if self.kind == "per sample":
            return None if batch_size is None else round(self.value * batch_size)
        if available is None:
            return None
        # A share of few values is still some of them.
        return max(round(self.value * available), 1 if self.value and available else 0)

    @property
    def text(self) -> str:
        """Return the size as it is typed."""
        if self.kind == "share":
            return f"{100 * self.value:g}%"
        return f"{self.value:g}" + ("/sample" if self.kind == "per sample" else "")


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """What is assumed at a line: how a condition comes out, or how many values are found."""

    file: str
    """The end of the path of a source file, with slashes: `model.py`, `timm/models/swin.py`."""
    line: int
    value: bool | AssumedSize

    @property
    def place(self) -> str:
        """Return "model.py:12"."""
        return f"{self.file}:{self.line}"

    @property
    def option(self) -> str:
        """Return the option that says it."""
        if isinstance(self.value, bool):
            return f"--assume-{str(self.value).lower()} {self.place}"
        return f"--assume-size {self.place}={self.value.text}"

    def is_at(self, filename: str, line: int) -> bool:
        """Return whether it is about a line of a source file."""
        parts, wanted = (each.replace("\\", "/").split("/") for each in (filename, self.file))
        return line == self.line and parts[-len(wanted) :] == wanted


def parse_assumptions(assumed: Mapping[str, bool | int | str]) -> tuple[Assumption, ...]:
    """Return what is assumed at each line.

    Args:
        assumed: "FILE:LINE" → True or False for a condition; 64, "64/sample" or "50%" for a size.

    Raises:
        UsageError: A key is no line of a Python file, or a value is none of these.
    """
    return tuple(_parsed(place, value) for place, value in assumed.items())


def assumed_by_options(
    true: Iterable[str], false: Iterable[str], sizes: Iterable[str]
) -> dict[str, bool | int | str]:
    """Return what `--assume-true`, `--assume-false` and `--assume-size` say, for `model`.

    Raises:
        UsageError: A line is given twice, or a size is not of the form FILE:LINE=SIZE.
    """
    found: dict[str, bool | int | str] = {}
    pairs: list[tuple[str, bool | str]] = [(place, True) for place in true]
    pairs += [(place, False) for place in false]
    for text in sizes:
        place, equals, size = text.rpartition("=")
        if not equals:
            raise UsageError(
                f"--assume-size {text} is not of the form FILE:LINE=SIZE.",
                fix=f"write model.py:31=SIZE; the size is {_FORMS}.",
            )
        pairs.append((place, size))
    for place, value in pairs:
        if place in found:
            raise UsageError(
                f"What is assumed at {place} is given twice.", fix="keep one --assume-… for a line."
            )
        found[place] = value
    return found


def _parsed(place: str, value: bool | int | str) -> Assumption:
    match = _PLACE.fullmatch(place.strip().replace("\\", "/"))
    if match is None:
        raise UsageError(
            f"{place!r} is not a line of a Python file.",
            fix="write FILE:LINE as the message of the trace does, such as model.py:12.",
        )
    known = value if isinstance(value, bool) else _size(place, str(value))
    file = match["file"].removeprefix("./")
    return Assumption(file=file, line=int(match["line"]), value=known)


def _size(place: str, text: str) -> AssumedSize:
    match = _SIZE.fullmatch(text.strip())
    share = float(match["share"]) / 100 if match and match["share"] else None
    if match is None or (share is not None and share > 1):
        raise UsageError(
            f"The size at {place}, {text!r}, is not understood.", fix=f"give {_FORMS}."
        )
    if share is not None:
        return AssumedSize(value=share, kind="share")
    return AssumedSize(value=int(match["number"]), kind="per sample" if match["each"] else "number")
