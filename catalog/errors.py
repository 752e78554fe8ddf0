"""Every error a user can cause, each with the exit code the command ends with.

    GpuplanError                 1
    ├── UserFileError            1   the model file failed, timed out or is not understood
    ├── UsageError               2   a bad option, an unreadable path, an unknown name
    ├── NoFeasiblePlanError      3   nothing fits, or nothing fits the limits
    ├── LimitError               4   over a budget, a gate or a guard
    └── PriceError               5   a price or the catalogue is unavailable

Raised anywhere, printed in one place: `cli/main.py`.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class GpuplanError(Exception):
    """A failure with a message for the user: what was given, what is allowed, how to fix it.

    Args:
        message: What was given and what is wrong with it, one sentence.
        fix: What to do about it, one sentence; printed after "To fix: ".
    """

    exit_code = 1

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\nTo fix: {self.fix}" if self.fix else self.message


class UserFileError(GpuplanError):
    """The user's model file failed, timed out or does not follow the contract."""

    exit_code = 1


class UsageError(GpuplanError):
    """A bad option, an unreadable path, an unknown name, or a question that needs a terminal."""

    exit_code = 2


class NoFeasiblePlanError(GpuplanError):
    """No plan fits the memory or the limits that were given."""

    exit_code = 3


class LimitError(GpuplanError):
    """A budget, a gate or a guard was passed."""

    exit_code = 4


class PriceError(GpuplanError):
    """A price or the catalogue is unavailable."""

    exit_code = 5


def did_you_mean(given: str, known: Iterable[str], *, limit: int = 3) -> str:
    """Return " Did you mean X or Y?" for the known names closest to `given`, or an empty string."""
    by_folded = {name.casefold(): name for name in known}
    close = get_close_matches(given.casefold(), by_folded, n=limit, cutoff=0.6)
    names = [by_folded[name] for name in close]
    return f" Did you mean {' or '.join(names)}?" if names else ""
