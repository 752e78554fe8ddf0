"""What this machine has for a run: its CUDA devices, its cores, its memory, a free port."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
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


def free_memory_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory that new processes can have at most, swap included; None: not known.

    A container, or a group of a service, may be limited to less than the machine has. What files
    take of that limit is given back when it is needed, so it counts as free.

    Args:
        root: where the system's own folders are.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        held = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        available, swap = held["MemAvailable"], held.get("SwapFree", 0)
    except (OSError, ValueError, LookupError):
        return None
    return min([available, *_left_of_limits(root)]) + swap


def _left_of_limits(root: Path) -> Iterator[int]:
    """Yield what each limit on this process, or on a group around it, leaves."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        else:
            continue
        own = top / path.strip("/")
        for folder in (own, *own.parents):
            if not folder.is_relative_to(top):
                break
            left = _left_of_limit(folder, *names)
            if left is not None:
                yield left


def _left_of_limit(folder: Path, limit: str, used: str, prefix: str) -> int | None:
    """Return what the limit of one group leaves; None where it has none."""
    try:
        most = int((folder / limit).read_text())
        now = int((folder / used).read_text())
        lines = (folder / "memory.stat").read_text().splitlines()
        parts = {name: int(size) for name, size in map(str.split, lines)}
    except (OSError, ValueError):  # "max" is no number
        return None
    given_back = ("inactive_file", "active_file", "slab_reclaimable")
    return max(0, most - now + sum(parts.get(prefix + name, 0) for name in given_back))


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
