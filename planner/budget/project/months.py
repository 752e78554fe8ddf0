"""Months of the calendar, and how the hours of a span of time fall into them."""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import total_ordering
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from ....catalog.units import HOURS_PER_DAY, MONTHS_PER_YEAR


@total_ordering
@dataclass(frozen=True)
class Month:
    """One month: 2027-01."""

    year: int
    number: int
    """From 1 to 12."""

    @classmethod
    def parse(cls, value: object) -> Month:
        """Return the month that "2027-01" or a day of it names.

        Raises:
            ValueError: It names none.
        """
        if isinstance(value, Month):
            return value
        parts = str(value).strip().split("-")
        numbers = [int(part) for part in parts if part.isascii() and part.isdigit()]
        if (
            len(numbers) != len(parts)
            or len(parts) not in (2, 3)
            or not 2000 <= numbers[0] <= 2200
            or not 1 <= numbers[1] <= MONTHS_PER_YEAR
        ):
            raise ValueError(f"{value!r} is not a month; write it as 2027-01.")
        return cls(numbers[0], numbers[1])

    @classmethod
    def of(cls, day: date) -> Month:
        """Return the month of a day."""
        return cls(day.year, day.month)

    def plus(self, months: int) -> Month:
        """Return the month so many later; earlier for a negative number."""
        years, number = divmod(self.year * MONTHS_PER_YEAR + self.number - 1 + months, 12)
        return Month(years, number + 1)

    def since(self, other: Month) -> int:
        """Return how many months it is later than another."""
        return (self.year - other.year) * MONTHS_PER_YEAR + self.number - other.number

    @property
    def hours(self) -> int:
        """Hours in it."""
        return calendar.monthrange(self.year, self.number)[1] * HOURS_PER_DAY

    @property
    def first_day(self) -> date:
        """The first day of it."""
        return date(self.year, self.number, 1)

    @property
    def last_day(self) -> date:
        """The last day of it."""
        return date(self.year, self.number, self.hours // HOURS_PER_DAY)

    def __str__(self) -> str:
        """Return it as 2027-01."""
        return f"{self.year:04d}-{self.number:02d}"

    def __lt__(self, other: Month) -> bool:
        """Return whether it is earlier."""
        return (self.year, self.number) < (other.year, other.number)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: Any, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return how it is read from text and written as text."""
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: CoreSchema, _handler: Any) -> dict[str, Any]:
        """Return its JSON Schema: text."""
        return {"type": "string", "pattern": r"^\d{4}-\d{2}$", "examples": ["2027-01"]}


def months_from(start: Month) -> Iterator[tuple[Month, float, float]]:
    """Yield every month from `start` on with the hours from its begin to the month's two ends."""
    begin = 0.0
    while True:
        end = begin + start.hours
        yield start, begin, end
        start, begin = start.plus(1), end


def shares_by_month(start: Month, begin_h: float, end_h: float) -> list[tuple[Month, float]]:
    """Return the months that a span of time falls into, with its share in each; they add up to 1.

    Args:
        start: The month whose begin is hour 0.
        begin_h: Hours from there to the begin of the span.
        end_h: Hours to its end; a span of no length is in one month.
    """
    found: list[tuple[Month, float]] = []
    for month, first, last in months_from(start):
        if last <= begin_h:
            continue
        if end_h <= begin_h:
            return [(month, 1.0)]
        inside = min(last, end_h) - max(first, begin_h)
        found.append((month, inside / (end_h - begin_h)))
        if last >= end_h:
            return found
    raise AssertionError("months do not end")


def hours_until(start: Month, month: Month) -> float:
    """Return the hours from the begin of one month to that of another, which is not earlier."""
    return float((month.first_day - start.first_day).days * HOURS_PER_DAY)
