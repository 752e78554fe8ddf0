"""Which clouds can be rented from, as text for a terminal: one line for each, its remedy below."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.text import Text

from ....launcher.skypilot.check import CloudCheck, SkyCheck

LABEL_WIDTH = 12


def render_check(found: SkyCheck, *, width: int) -> list[Text]:
    """Return the lines of `gpuplan check`."""
    version = found.skypilot_version
    lines = [Text("SkyPilot is not installed" if version is None else f"SkyPilot {version}")]
    lines += [line for cloud in found.clouds for line in _cloud(cloud, width)]
    if found.problem is not None:
        lines += [Text(), Text(f"{found.problem[:1].upper()}{found.problem[1:]}.", "bold")]
        lines += [Text(part) for part in _wrapped(f"To fix: {found.fix}", width)]
    else:
        usable = ", ".join(cloud.cloud for cloud in found.clouds if cloud.enabled)
        lines += [Text(), Text(f"Usable: {usable}.", "bold")]
    return lines


def _cloud(cloud: CloudCheck, width: int) -> Iterator[Text]:
    mark, colour = ("✓", "green") if cloud.enabled else ("·", "yellow")
    said = []
    if cloud.why is not None:
        said.append(cloud.why)
    if cloud.fix is not None:
        said.append(f"To fix: {cloud.fix}")
    if cloud.credentials:
        said.append(f"found here: {', '.join(cloud.credentials)}")
    parts = [part for text in said for part in _wrapped(text, width - LABEL_WIDTH - 2)] or [
        "usable"
    ]
    yield Text.assemble((mark, colour), f" {cloud.cloud:<{LABEL_WIDTH}}", parts[0])
    for part in parts[1:]:
        yield Text(f"{'':{LABEL_WIDTH + 2}}{part}")


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
