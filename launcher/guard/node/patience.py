"""What may never come back, such as a disk on a network: called in a thread, with a time limit.

A thread that waits in the kernel cannot be ended. It is left behind, and no clock waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


def within(seconds: float, action: Callable[[], None]) -> str | None:
    """Call something that uses files, with a time limit; return what went wrong, or None."""
    problems = ["it took too long"]

    def act() -> None:
        try:
            action()
            problems.clear()
        except (OSError, ValueError) as error:
            problems[:] = [str(error)]

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(seconds)
    return problems[0] if problems else None


class OneAtATime:
    """Calls what may never come back, such as one that waits for a disk that hangs."""

    def __init__(self) -> None:
        """Begin with nothing called."""
        self._called: threading.Thread | None = None

    def within(
        self, seconds: float, action: Callable[[], object], *, after_earlier: bool = False
    ) -> None:
        """Call it and wait so long at most; do nothing while an earlier call has not come back.

        Args:
            seconds: to wait.
            action: what may hang.
            after_earlier: whether to wait as long for an earlier call, of another thread, first.
        """
        earlier = self._called
        if earlier is not None and after_earlier:
            earlier.join(seconds)
        if earlier is not None and earlier.is_alive():
            return
        called = threading.Thread(target=action, daemon=True)
        called.start()
        self._called = called
        called.join(seconds)
