"""What an error says, in one line."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, or its type where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
