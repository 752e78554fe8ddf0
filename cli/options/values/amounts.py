"""Amounts that may be written in two ways: a batch in samples or tokens, a number or "all"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from ....catalog.text.amounts import parse_batch, parse_share
from ..shared import Count

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
        try:
            samples, tokens = parse_batch(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return Batch(samples=samples, tokens=tokens)


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
        try:
            return parse_share(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
