"""A thread that looks at what the cloud does while the main thread waits for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType

from ...catalog.errors import GpuplanError

WaitFor = Callable[[threading.Event, float], bool]
"""From an event and seconds to whether it was set within them."""


class Looking:
    """Looks again and again until that has found what it looks for, or its block ends.

    From a thread, since the block may last for days, and nobody can end what it waits for.
    """

    def __init__(
        self,
        look: Callable[[], bool],
        *,
        every_s: float,
        join_s: float,
        is_wanted: bool = True,
        wait: WaitFor = threading.Event.wait,
    ) -> None:
        """Prepare it.

        Args:
            look: returns whether there is nothing more to look for. What it raises is not told: the
                next look may succeed, and what waits in the main thread says what lasts.
            every_s: before the first look, and from one to the next.
            join_s: how long the end of the block waits for a look that is under way.
            is_wanted: whether to look at all.
            wait: waits for the end of the block.
        """
        self._look = look
        self._every_s, self._join_s = every_s, join_s
        self._is_wanted = is_wanted
        self._wait = wait
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="looking", daemon=True)

    def __enter__(self) -> Looking:
        """Begin to look."""
        if self._is_wanted:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Look no more; after an error, without waiting for a look that is under way."""
        self._over.set()
        if kind is None and self._thread.is_alive():
            self._thread.join(self._join_s)

    def _run(self) -> None:
        is_found = False
        while not is_found and not self._wait(self._over, self._every_s):
            with contextlib.suppress(GpuplanError):
                is_found = self._look()
