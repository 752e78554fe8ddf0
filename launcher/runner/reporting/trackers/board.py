"""TensorBoard, where its package is installed: it may fail, and training goes on without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RUN = "run"
"""What the table of a run's configuration is called."""
Open = Callable[[str], Any]
"""Returns a writer of curves into a folder, with `add_scalar`, `add_text` and `close`."""


class Board:
    """Curves for TensorBoard. The first failure is said once, and nothing is written after it."""

    def __init__(self, folder: Path, open_writer: Open | None, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._writer: Any = None
        if open_writer is not None:
            self._writer = self._tried(lambda: open_writer(str(folder / "tensorboard")))

    def introduce(self, facts: Mapping[str, Any]) -> None:
        """Add a table of what is known of the run."""
        writer = self._writer
        if writer is not None:
            lines = [f"| {name} | {value} |" for name, value in facts.items() if value is not None]
            table = "\n".join(["| run | |", "|---|---|", *lines])
            self._tried(lambda: writer.add_text(RUN, table))

    def write(self, metrics: dict[str, Any]) -> None:
        """Add a point to the curve of every number."""
        for name, value in metrics.items():
            writer = self._writer
            if writer is not None and isinstance(value, int | float) and name != "step":
                self._tried(lambda w=writer, n=name, v=value: w.add_scalar(n, v, metrics["step"]))

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._tried(self._writer.close)

    def _tried(self, act: Callable[[], Any]) -> Any:
        """Return what a call returns; None, and no writer any more, where it fails."""
        try:
            return act()
        # Whatever it is (a full disk, another version): curves are not worth the run.
        except Exception as error:
            self._writer = None
            lines = str(error).strip().splitlines()
            why = ": ".join([type(error).__name__, *lines[:1]])
            self._tell(f"nothing more is written for TensorBoard ({why}); the run goes on")
            return None


def writer_of_torch() -> Open | None:
    """Return what opens a writer; None where the `tensorboard` package is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter
