"""A gpuplan whose machines end themselves within the minutes of a test, and not after hours."""

from pathlib import Path

SCRIPT = """\
import sys

from gpuplan.cli.main import main
from gpuplan.launcher.guard.orders import TimerOrders
from gpuplan.launcher.prepare.task import guard_config

guard_config.TimerOrders = lambda **given: TimerOrders(**{{**given, **{timer!r}}})
sys.exit(main())
"""


def hurried(folder: Path, **timer: float) -> tuple[str, ...]:
    """Return the words that stand for `gpuplan`; all else of its orders is as it always is.

    Args:
        folder: where the script is written.
        timer: what the orders of timers hold instead, by its field.
    """
    path = folder / "hurried.py"
    path.write_text(SCRIPT.format(timer=timer))
    return ("python", str(path))
