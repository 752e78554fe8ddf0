"""Amounts as people write them ("10B", "48h", "$500") → numbers, in SI units and US dollars."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from ..units import HOURS_PER_YEAR, SECONDS_PER_HOUR

LARGEST_COUNT = 1e18
LARGEST_WHOLE_COUNT = 1e12
"""Products of two or three of these must stay exact."""
LARGEST_USD = Decimal(10) ** 15
"""Sums of these stay exact to the cent in 28 digits, multiplied by a number of six decimals too."""
COUNT_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
LONGEST_YEARS = 100
"""Of a span of time: what is reckoned from now has to end before the calendar of Python does."""
DURATION_UNITS_S = {
    "s": 1,
    "min": 60,
    "m": 60,
    "h": SECONDS_PER_HOUR,
    "d": 24 * SECONDS_PER_HOUR,
    "w": 7 * 24 * SECONDS_PER_HOUR,
}


DURATION_WORDS = {
    word: unit
    for unit, words in {
        "s": ("sec", "secs", "second", "seconds"),
        "min": ("mins", "minute", "minutes"),
        "h": ("hr", "hrs", "hour", "hours"),
        "d": ("day", "days"),
        "w": ("week", "weeks"),
    }.items()
    for word in words
}
"""Units as people write them out."""


GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d*)?(?:[a-z].*)?")
"""Commas between groups of three digits before the point, and nowhere else: 1,234,567.89."""


def _without_commas(text: str, value: object) -> str:
    """Return a number without the commas and underscores between its digits.

    Raises:
        ValueError: There is a comma elsewhere, which somebody may mean as a decimal point.
    """
    if "," in text and not GROUPED.fullmatch(text.replace("_", ",")):
        raise ValueError(
            f"{value!r} has a comma that does not divide thousands, as in 1,234,567.89; write the"
            " decimals with a point: 400.50."
        )
    return text.replace(",", "").replace("_", "")


def parse_count(value: object, *, whole: bool = False) -> float | int:
    """Return a number of things above zero: 512, 300M, 10B, 1.5T, 1e9; whole ones as int.

    Raises:
        ValueError: It is none, or too large; says so in words for the person who wrote it.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    else:
        match = re.fullmatch(r"([\d_,]*\.?\d+(?:e[+-]?\d+)?)\s*([kmbgt]?)", _folded(value))
        if not match:
            what = "a size in bytes" if _is_bytes(value) else "not a number above zero"
            raise ValueError(f"{value!r} is {what}; write it as 512, 300M or 10B.")
        digits = _without_commas(match[1], value)
        number = float(Decimal(digits) * COUNT_SUFFIXES[match[2]])
    if not number > 0:
        raise ValueError(f"{value!r} is not above zero.")
    largest = LARGEST_WHOLE_COUNT if whole else LARGEST_COUNT
    if number > largest:
        raise ValueError(f"{value!r} is too large; at most {largest:.0e} is taken.")
    if not whole:
        return number
    if number != int(number):
        raise ValueError(f"{value!r} is not a whole number.")
    return int(number)


def parse_duration_s(value: object, *, bare_unit: str | None = None) -> float:
    """Return the seconds of a span of time with its unit: 90min, 48h, 3d, 2w.

    Args:
        value: As it was written.
        bare_unit: The unit of a number without one; None: it is an error.

    Raises:
        ValueError: It is none; says so in words for the person who wrote it.
    """
    match = re.fullmatch(r"(\d*\.?\d+)\s*([a-z]+)?", _folded(value))
    word = match[2] if match else None
    unit = DURATION_WORDS.get(word, word) if word else bare_unit
    if unit not in DURATION_UNITS_S:
        unit = None
    if match is None or unit is None:
        raise ValueError(
            f"{value!r} is not a span of time; write it with a unit, as 90min, 48h, 3d or 2 weeks."
        )
    seconds = float(match[1]) * DURATION_UNITS_S[unit]
    if seconds <= 0:
        raise ValueError(f"{value!r} is not above zero.")
    if seconds > LONGEST_YEARS * HOURS_PER_YEAR * SECONDS_PER_HOUR:
        raise ValueError(f"{value!r} is too long; at most {LONGEST_YEARS} years are taken.")
    return seconds


BYTE_UNITS = {
    **{f"{prefix}b": 1000**power for power, prefix in enumerate(("k", "m", "g", "t", "p"), 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate(("k", "m", "g", "t", "p"), 1)},
}


def _is_bytes(value: object) -> bool:
    return re.fullmatch(r"[\d_,.]+\s*[kmgtp]i?b", _folded(value)) is not None


def parse_bytes(value: object) -> float:
    """Return the bytes of a size with its unit: 500GB (of 10^9 bytes), 1.5TB, 2TiB.

    Raises:
        ValueError: It is none; says so in words for the person who wrote it.
    """
    match = re.fullmatch(r"(\d[\d_,]*(?:\.\d+)?)\s*([kmgtp]i?b)", _folded(value))
    if match is None:
        raise ValueError(f"{value!r} is not a size; write it with a unit, as 500GB or 2TiB.")
    size = float(_without_commas(match[1], value)) * BYTE_UNITS[match[2]]
    if not 0 < size <= LARGEST_COUNT:
        raise ValueError(f"{value!r} is not above zero, or too large.")
    return size


def parse_usd(value: object) -> Decimal:
    """Return an amount of US dollars above zero, exactly: 500, $500, 1,500.50, 2k.

    Raises:
        ValueError: It is none; says so in words for the person who wrote it.
    """
    text = _folded(value).removeprefix("$").removesuffix("usd").strip()
    text = _without_commas(text, value)
    factor = 1
    if text.endswith(("k", "m")):
        factor = COUNT_SUFFIXES[text[-1]]
        text = text[:-1]
    try:
        usd = Decimal(text) * factor
    except InvalidOperation:
        raise ValueError(f"{value!r} is not an amount of US dollars; write 500 or 2k.") from None
    if not (usd.is_finite() and usd > 0):
        raise ValueError(f"{value!r} is not above zero.")
    if usd > LARGEST_USD:
        raise ValueError(f"{value!r} is too large; at most {LARGEST_USD:.0e} US dollars are taken.")
    return usd


def parse_share(value: object, *, least: float | None = None) -> float:
    """Return a share above 0 and up to 1: 0.02 or 2%; with `least`, from that on.

    Raises:
        ValueError: It is none; says so in words for the person who wrote it.
    """
    text = _folded(value)
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = float("nan")
    if least is not None and not least <= number <= 1:
        raise ValueError(f"{value!r} is no share from {least:g} to 1: write 0.02 or 2%.")
    if least is None and not 0 < number <= 1:
        raise ValueError(f"{value!r} is no share above 0 and up to 1: write 0.02 or 2%.")
    return number


def parse_batch(value: object) -> tuple[int | None, float | None]:
    """Return the samples or the tokens of one optimizer step: 512, or 0.5M-tokens.

    Raises:
        ValueError: It is none; says so in words for the person who wrote it.
    """
    match = re.fullmatch(r"(.+?)[-_ ]?(tokens|token|samples|sample)", _folded(value))
    number, unit = (match[1], match[2]) if match else (value, "samples")
    if unit.startswith("token"):
        return None, parse_count(number)
    return int(parse_count(number, whole=True)), None


def _folded(value: object) -> str:
    return str(value).strip().lower()


def format_given_share(share: float) -> str:
    """Return a fraction that the user gave as the percentage it was written as.

    >>> format_given_share(0.125), format_given_share(0.00125), format_given_share(0.07)
    ('12.5 %', '0.125 %', '7 %')
    """
    return f"{share * 100:.10g} %"
