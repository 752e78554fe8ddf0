"""Amounts that may be written in two ways: a batch in samples or tokens, a number or "all"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import click

from .shared import Count

ALL = 0
"""What `--top all` is held as."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One optimizer step's batch, in samples or in tokens."""

    samples: int | None = None
    tokens: float | None = None


class BatchSize(click.ParamType):
    """A global batch: 512 samples, or 0.5M-tokens."""

    name = "number[-tokens]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Batch:
        """Return the batch."""
        if isinstance(value, Batch):
            return value
        text = str(value).strip().lower()
        match = re.fullmatch(r"(.+?)[-_ ]?(tokens|token|samples|sample)", text)
        number, unit = (match[1], match[2]) if match else (text, "samples")
        if unit.startswith("token"):
            return Batch(tokens=Count().convert(number, param, ctx))
        return Batch(samples=int(Count(whole=True).convert(number, param, ctx)))


class CountOrAll(click.ParamType):
    """A whole number above zero, or "all"."""

    name = "number|all"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; `ALL` for "all"."""
        if isinstance(value, str) and value.strip().lower() == "all":
            return ALL
        return int(Count(whole=True).convert(value, param, ctx))


class Share(click.ParamType):
    """A share above 0 and up to 1: 0.02 or 2%."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the share."""
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            number = -1.0
        if not 0 < number <= 1:
            self.fail(f"{value!r} is no share above 0 and up to 1: write 0.02 or 2%.", param, ctx)
        return number
