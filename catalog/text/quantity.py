"""Times, memory, rates and counts as text for a terminal, each with its unit."""

from __future__ import annotations

from ..units import GIB, KIB, MIB

UNKNOWN = "?"
DASH = "–"  # noqa: RUF001

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_BYTE_UNITS = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_COUNT_UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))
_HOURS_IN_YEAR = 365.25 * 24
_HOUR_UNITS = (
    (3 * _HOURS_IN_YEAR, _HOURS_IN_YEAR, "years"),
    (72.0, 24.0, "days"),
    (2.0, 1.0, "h"),
    (2 / 60, 1 / 60, "min"),
    (0.0, 1 / 3600, "s"),
)
"""(from this many hours, hours in one unit, unit)."""


def format_seconds(seconds: float) -> str:
    """Return a step's duration to three significant digits: "412 ms", "1.24 s", "35.0 µs"."""
    if not seconds:
        return "0 s"
    for size_s, unit in _TIME_UNITS:
        if seconds >= size_s or unit == "µs":
            return f"{_significant(seconds / size_s)} {unit}"
    raise AssertionError("the last unit takes every duration")


def format_hours_range(low: float, likely: float, high: float) -> str:
    """Return "31–38 h", both ends in the unit of the likely value."""
    _, size, unit = _hour_unit(likely)
    low_text, high_text = _two_digits(low / size), _two_digits(high / size)
    if low_text == high_text:
        return f"{low_text} {unit}"
    return f"{low_text}{DASH}{high_text} {unit}"


def format_duration(hours: float) -> str:
    """Return one length of time: "10 days", "48 h", "30 min"."""
    _, size, unit = _hour_unit(hours)
    return f"{hours / size:.3g} {unit}"


def format_gib(size_bytes: float) -> str:
    """Return a memory size in GiB, with one decimal below 100 GiB: "61.2 GiB"."""
    return f"{_gib(size_bytes)} GiB"


def format_memory_use(used_bytes: float, capacity_bytes: float) -> str:
    """Return "61.2/79.2 GiB"."""
    return f"{_gib(used_bytes)}/{_gib(capacity_bytes)} GiB"


def format_bytes(size_bytes: float) -> str:
    """Return a size in the largest binary unit that it fills: "1.2 GiB", "16.0 KiB", "8 B"."""
    for unit_bytes, unit in _BYTE_UNITS:
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:,.1f} {unit}"
    return f"{size_bytes:,.0f} B"


def format_count(count: float) -> str:
    """Return a large count with its suffix: "124.4M", "8.03B", "512"."""
    for size, suffix in _COUNT_UNITS:
        if count >= size:
            return f"{_significant(count / size)}{suffix}"
    return _significant(count) if count < 1000 and count != int(count) else f"{count:,.0f}"


def format_samples(count: int) -> str:
    """Return "1 sample" or "8 samples"."""
    return f"{count:,} sample{'' if count == 1 else 's'}"


def format_share(share: float | None) -> str:
    """Return a fraction as a percentage: "41 %"; "?" where it is not defined."""
    return UNKNOWN if share is None else f"{share * 100:.0f} %"


def format_part(share: float) -> str:
    """Return a part of a whole as a percentage that is not zero: "41 %", "<1 %"."""
    return "<1 %" if 0 < share < 0.01 else format_share(share)


def format_spread(value: float, low: float, high: float) -> str:
    """Return half the width of an interval relative to its value: "±9 %"."""
    return f"±{(high - low) / 2 / value * 100:.0f} %" if value > 0 else "±0 %"


def _hour_unit(hours: float) -> tuple[float, float, str]:
    return next(unit for unit in _HOUR_UNITS if hours >= unit[0])


def _gib(size_bytes: float) -> str:
    gib = size_bytes / GIB
    return f"{gib:,.0f}" if gib >= 99.95 else f"{gib:.1f}"


def _significant(value: float) -> str:
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _two_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}"
