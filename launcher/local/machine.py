"""What this machine has for a run: its CUDA devices, its cores, a free port."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

ASKING_LIMIT_S = 120.0
DRIVER_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Linux has one of them where torch can see a device: NVIDIA's, AMD's, or Windows's below."""
QUESTION = (
    "import json, torch; print(json.dumps("
    "[torch.cuda.get_device_name(one) for one in range(torch.cuda.device_count())]))"
)


def device_names() -> tuple[str, ...]:
    """Return the name of every CUDA device that torch sees; () where there is none.

    torch is asked in a process of its own, and only where there is a driver at all.
    """
    if sys.platform == "linux" and not any(Path(one).exists() for one in DRIVER_FILES):
        return ()
    try:
        done = subprocess.run(
            [sys.executable, "-c", QUESTION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASKING_LIMIT_S,
        )
        return tuple(json.loads(done.stdout))
    except (subprocess.TimeoutExpired, ValueError):
        return ()


def core_count() -> int:
    """Return how many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_port_free(port: int) -> bool:
    """Return whether a TCP port can be listened on here."""
    with socket.socket() as probe:
        # As torch's own store does: a port that was closed a moment ago can be taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
