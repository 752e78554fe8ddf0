"""How a process of a job ends: as an interpreter does, but without taking its modules apart.

That is the last thing an interpreter does. With torch loaded it takes a second of a core, in which
the machine is paid for, and nothing depends on it: the system takes the memory back at once.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from typing import NoReturn


def end_at_once(code: int) -> NoReturn:
    """Wait for the threads, run what is registered for the exit, and end with this exit code."""
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # Nobody reads it any more.
            stream.flush()
    os._exit(code)
