"""What `gpuplan export-weights` wrote, as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....catalog.units import GB

if TYPE_CHECKING:
    from ....launcher.local.export_weights import ExportedWeights


def render_weights(written: ExportedWeights) -> str:
    """Return the lines of an export."""
    lines = [
        f"{written.parameters:,} values, {_size(written.size_bytes)}, of step {written.step}"
        f" · {written.folder}",
        *(f"  {name}" for name in written.files),
    ]
    if written.tied:
        shown = ", ".join(f"{name} is {other}" for name, other in written.tied.items())
        lines.append(f"Tied weights are written once: {shown}")
    if written.format == "huggingface":
        lines.append(f'Read it: AutoModel….from_pretrained("{written.folder}")')
    return "\n".join(lines) + "\n"


def _size(size_bytes: int) -> str:
    """Return an amount of bytes in GB, or in kB where that is too much.

    >>> _size(2_500_000_000), _size(362_240)
    ('2.5 GB', '362 kB')
    """
    return f"{size_bytes / GB:.3g} GB" if size_bytes >= GB / 100 else f"{size_bytes / 1e3:.0f} kB"
