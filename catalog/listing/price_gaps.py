"""What the package is known to lack, and where the answer is: `data/curated/price_gaps.csv`."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from ..embedded import CURATED_DIR

Missing = Literal["on-demand", "spot", "type"]


@dataclass(frozen=True, kw_only=True)
class PriceGap:
    """Instance types of one provider of which something is missing."""

    provider: str
    instance_type: str
    """A pattern: `p5e.*`."""
    missing: Missing
    """A price, or the type itself."""
    accelerator: str
    text: str
    """Why it is missing, and where it is to be had."""
    source: str


@cache
def price_gaps() -> tuple[PriceGap, ...]:
    """Return all known gaps."""
    with (CURATED_DIR / "price_gaps.csv").open(newline="", encoding="utf-8") as file:
        return tuple(PriceGap(**row) for row in csv.DictReader(file))  # type: ignore[arg-type]


def gap_of(provider: str, instance_type: str, missing: Missing) -> PriceGap | None:
    """Return why a price of a type is missing; None where that is not known."""
    for gap in price_gaps():
        if (gap.provider, gap.missing) == (provider, missing) and fnmatchcase(
            instance_type, gap.instance_type
        ):
            return gap
    return None


def missing_type(name: str) -> PriceGap | None:
    """Return what is known of an instance type that the catalogue does not have."""
    for gap in price_gaps():
        if gap.missing == "type" and fnmatchcase(name.lower(), gap.instance_type.lower()):
            return gap
    return None


def missing_types(asked: Iterable[str]) -> list[PriceGap]:
    """Return the types that the catalogue lacks of what a list of offers was asked for.

    Args:
        asked: Its phrases: ("GB300", "provider azure").
    """
    words = {word.strip(",") for phrase in asked for word in phrase.split()}
    named = [phrase for phrase in asked if phrase.startswith("provider")]
    return [
        gap
        for gap in price_gaps()
        if gap.missing == "type"
        and gap.accelerator in words
        and (not named or gap.provider in words)
    ]
