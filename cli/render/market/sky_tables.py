"""What was written into SkyPilot's tables of machines, a line for each cloud."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ....launcher.skypilot.price_tables import Export


def render_export(folder: Path, export: Export | None, missing: Sequence[str]) -> str:
    """Return what was written, and of which clouds SkyPilot's own prices stay."""
    lines = [f"The prices in {folder} are these already."] if export is None else [*_clouds(export)]
    if missing:
        lines.append(
            f"SkyPilot's own table is not here yet, so its prices stay: {', '.join(missing)}."
            " SkyPilot downloads it when it first looks there."
        )
    return "\n".join([*lines, ""])


def _clouds(export: Export) -> Iterator[str]:
    for cloud in sorted(export.tables):
        left_out = export.left_out.get(cloud, {})
        parts = [f"{export.priced.get(cloud, 0)} offers priced"]
        parts += [f"{count} left out: {why}" for why, count in left_out.items()]
        yield f"{cloud}: {'; '.join(parts)}"
