"""What `--checkpoint-every` takes."""

from __future__ import annotations

import re
from typing import Any

import click

from ..shared import Count, Duration


class CheckpointEvery(click.ParamType):
    """How often: a number of steps (200), or a span of time (10m, 600s)."""

    name = "steps|time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, float | None]:
        """Return (steps, seconds), one of them None."""
        if isinstance(value, tuple):
            return value
        if re.fullmatch(r"\s*[\d_,]+\s*", str(value)):
            return int(Count(whole=True).convert(value, param, ctx)), None
        if not re.fullmatch(r"\s*\d*\.?\d+\s*(s|min|m|h|d)\s*", str(value).casefold()):
            self.fail(
                f"{value!r} is neither a number of steps (200) nor a span of time (10m, 600s).",
                param,
                ctx,
            )
        return None, Duration().convert(value, param, ctx)
