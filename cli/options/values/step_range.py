"""What `--profile-steps` takes."""

from __future__ import annotations

import re
from typing import Any

import click

MOST_STEPS = 50
"""A trace has some MB for each step."""


class StepRange(click.ParamType):
    """The first and the last of some steps, counted from 1: 10:12; or one: 10."""

    name = "first:last"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return (first, last)."""
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"\s*(\d+)\s*(?::\s*(\d+)\s*)?", str(value))
        if found is None:
            self.fail(f"{value!r} are no steps; write the first and the last, 10:12.", param, ctx)
        first = int(found[1])
        last = first if found[2] is None else int(found[2])
        if not 1 <= first <= last:
            self.fail(
                f"{value!r} are no steps: they are counted from 1, the last is not before the"
                " first.",
                param,
                ctx,
            )
        if last - first >= MOST_STEPS:
            self.fail(
                f"{value!r} are {last - first + 1:,} steps; a trace holds {MOST_STEPS} at most.",
                param,
                ctx,
            )
        return first, last
