"""How long this machine has been up: a count that no change of its clock reaches."""

from __future__ import annotations

import time
from pathlib import Path

from ..catalog.frozen import FrozenModel

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Linux makes another at every start: proc_sys_kernel(5)."""


class Uptime(FrozenModel):
    """A moment, as seconds since a start of this machine."""

    boot: str
    """Which start."""
    s: float
    """Time asleep counts too."""


def uptime() -> Uptime | None:
    """Return this moment; None where the system does not say which of its starts it counts from."""
    try:
        boot = BOOT_ID.read_text(encoding="ascii").strip()
        return Uptime(boot=boot, s=time.clock_gettime(time.CLOCK_BOOTTIME))
    except (OSError, ValueError, AttributeError):
        return None
