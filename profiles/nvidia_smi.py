"""The text of nvidia-smi, the NVIDIA driver's own command: how it is asked, and what it answers.

Standard library alone. (The guard has a reader of its own: it travels as a file by itself.)
"""

from __future__ import annotations

import csv
import os
from typing import Any

SLOWED_BY = {
    # Bits of nvmlClocksEventReasons (nvml.h); idle and clocks set by an application are not here.
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


def first_visible_device() -> str:
    """Return the id, as nvidia-smi takes it, of the first device that CUDA may see."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"


def command(question: str, device: str) -> list[str]:
    """Return the command that asks for comma-separated values, bare numbers, of one device.

    Args:
        question: such as "--query-gpu=clocks.sm,power.draw".
        device: its index or UUID.
    """
    return ["nvidia-smi", f"--id={device}", question, "--format=csv,noheader,nounits"]


def query_command(fields: dict[str, str], device: str | None = None) -> list[str]:
    """Return the command that asks the driver for these fields of a device.

    Args:
        fields: Our names, and the driver's name of each.
        device: its index or UUID; None is the first visible one.
    """
    return command(f"--query-gpu={','.join(fields.values())}", device or first_visible_device())


def rows_of(text: str) -> list[list[str]]:
    """Return the cells of an answer, a list for each line.

    >>> rows_of("1980, [N/A]")
    [['1980', '[N/A]']]
    """
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [[cell.strip() for cell in row] for row in rows]


def parse_answer(fields: dict[str, str], text: str) -> dict[str, Any] | None:
    """Return the driver's answer, numbers as numbers; None if it is no such answer.

    >>> parse_answer({"sm_clock_mhz": "clocks.sm", "power_w": "power.draw"}, "1980, [N/A]")
    {'sm_clock_mhz': 1980.0, 'power_w': None}
    """
    rows = rows_of(text)
    if not rows or len(rows[0]) != len(fields):
        return None
    return {name: _value(cell) for name, cell in zip(fields, rows[0], strict=True)}


def slowed_by(bits: Any) -> list[str] | None:
    """Return in words why the clocks are low, of the driver's bits; None if it did not say.

    >>> slowed_by("0x0000000000000044"), slowed_by(None)
    (['power cap', 'hardware thermal slowdown'], None)
    """
    try:
        value = int(str(bits), 16)
    except ValueError:
        return None
    return list(reasons_in(value))


def reasons_in(bits: int) -> tuple[str, ...]:
    """Return in words why the clocks are low, of the driver's bits.

    >>> reasons_in(0x44)
    ('power cap', 'hardware thermal slowdown')
    """
    return tuple(words for bit, words in SLOWED_BY.items() if bits & bit)


def _value(text: str) -> float | str | None:
    if text.startswith("[") or text in ("N/A", ""):
        return None
    try:
        return float(text)
    except ValueError:
        return text
