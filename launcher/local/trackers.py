"""The trackers that a run on this machine writes to, looked for before it is started."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from ...catalog.errors import UsageError
from ..runner.training_options import TRACKERS, TrainingOptions


def refuse_missing_trackers(
    training: TrainingOptions, find: Callable[[str], Any] = find_spec
) -> None:
    """Refuse a tracker whose package is not installed; nothing is imported.

    Raises:
        UsageError: one is not.
    """
    for name in training.tracker:
        missing = [module for module in TRACKERS[name] if find(module) is None]
        if missing:
            raise UsageError(
                f"--tracker {name} needs {', '.join(missing)}, not installed here.",
                fix=f"pip install 'gpuplan[{name}]', or leave it out.",
            )
