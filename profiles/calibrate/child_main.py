"""The child process of `gpuplan calibrate`: the only one that imports torch.

Run as `python -m gpuplan.profiles.calibrate.child_main cuda|cpu`. It writes one line of JSON
about the device, reads the points from its input, and writes a line for each as soon as it is
measured; so whatever ends it, what was measured is kept. When its input closes it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ..tracing_process.child_main import take_over_standard_streams
from .driver import LoadSampler, driver_facts
from .schedule import Point


def main(device: str) -> None:
    """Say what the device is, then measure the points that come on standard input."""
    requests, answers = take_over_standard_streams()

    def say(**fields: Any) -> None:
        answers.write(json.dumps(fields).encode() + b"\n")
        answers.flush()

    try:
        say(facts=_facts(device))
    except Exception as error:
        say(error=_one_line(error))
        return
    line = requests.readline()
    if not line:
        return
    threading.Thread(target=_end_with_parent, args=(requests,), daemon=True).start()
    points = [Point.from_json(raw) for raw in json.loads(line)]
    for fields in _measured(points, device):
        say(**fields)
    say(done=True)
    _end()


def _measured(points: list[Point], device: str) -> Iterator[dict[str, Any]]:
    from .collectives import RankGroup
    from .kernels import make_stopwatch, timed

    stopwatch, group = make_stopwatch(device), None
    sampler = LoadSampler() if device == "cuda" else None
    for index, point in enumerate(points):
        yield {"begin": index}
        try:
            if point.part != "collective":
                timing = timed(point, stopwatch)
            else:
                if group is None or group.ranks != point.shape[0]:
                    if group is not None:
                        group.close()
                    group = RankGroup(point.shape[0], device)
                timing = group.timed(point)
        except Exception as error:
            if point.part == "collective" and group is not None:
                group.close()
                group = None
            _release(
                device
            )  # Raises when the device can no longer be used: then this process ends.
            yield {"index": index, "skipped": _reason(error)}
            continue
        yield {"index": index, "time_s": timing.time_s, "spread": timing.spread}
        if sampler is not None and (load := sampler.poll()):
            yield {"load": load}


def _facts(device: str) -> dict[str, Any]:
    import torch

    facts: dict[str, Any] = {
        "device": device,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
    }
    if device == "cpu":
        free = _free_host_bytes()
        return facts | {"name": _processor(), "devices": 1, "free_bytes": free}
    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no CUDA device")
    properties = torch.cuda.get_device_properties(0)
    return facts | {
        "name": properties.name,
        "devices": torch.cuda.device_count(),
        "free_bytes": torch.cuda.mem_get_info()[0],
        "compute_capability": f"{properties.major}.{properties.minor}",
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        **driver_facts(),
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _free_host_bytes() -> int:
    with contextlib.suppress(OSError, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 2**30


def _release(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def _reason(error: Exception) -> str:
    text = f"{type(error).__name__} {error}".casefold()
    short = isinstance(error, MemoryError) or "out of memory" in text or "outofmemory" in text
    return "out of memory" if short or "allocate memory" in text else _one_line(error)


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]


def _end_with_parent(requests: IO[bytes]) -> None:
    requests.read()
    _end()


def _end() -> None:
    """End this process and the ranks that it started."""
    if os.name == "posix":
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
