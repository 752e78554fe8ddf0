"""Before the first step on several nodes: what an all-reduce reaches, and over what NCCL sends.

    bus bandwidth = 2 · (ranks - 1) / ranks · bytes / seconds

as nccl-tests counts it: what crosses the slowest link of a ring. It is left in `network.json`,
where the guard and the run record find it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from ....catalog.files import write_atomically
from ..job import Job
from ..reporting.metrics import say
from .processes import Processes

NETWORK_FILE = "network.json"
CUDA_BYTES, CPU_BYTES = 2**28, 2**22
"""Large enough that latency does not count."""
MIN_ROUNDS = 3
GB = 1e9
USES = re.compile(r"Using network (\S.*)")
FOUND = re.compile(r"NET/(\w+) ?: ?(?:Using|Selected)|NET/(\w+) (?:Selected|Using)")
LOG_VARIABLE = "NCCL_DEBUG_FILE"


@contextmanager
def nccl_log(job: Job) -> Iterator[Path | None]:
    """Let NCCL write what it uses into a file, where the network is looked at; yield its folder.

    Before the processes join, as NCCL reads its variables once. What the user set is left alone.
    """
    if job.network_bytes_per_s is None or job.device == "cpu" or "NCCL_DEBUG" in os.environ:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="gpuplan-nccl-"))
    given = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        LOG_VARIABLE: str(folder / "%h.%p"),
    }
    os.environ.update(given)
    try:
        yield folder
    finally:
        for name in given:
            os.environ.pop(name, None)
        shutil.rmtree(folder, ignore_errors=True)


def check_network(job: Job, processes: Processes, log: Path | None) -> None:
    """Time all-reduces over all processes of several nodes; leave and say what they reach.

    Args:
        job: with the bandwidth that was planned; nothing is done without it.
        processes: all of which call it.
        log: the folder of NCCL's log; None where there is none.
    """
    planned = job.network_bytes_per_s
    if planned is None or processes.nodes < 2:
        return
    rate = _bus_bytes_per_s(processes, job.network_check_s)
    if not processes.is_first:
        return
    over = None if log is None else network_used(_text(log))
    values = {
        "run_id": job.run_id,
        "all_reduce_bytes_per_s": rate,
        "planned_bytes_per_s": planned,
        "over": over,
    }
    job.out_dir.mkdir(parents=True, exist_ok=True)
    write_atomically(job.out_dir / NETWORK_FILE, json.dumps(values) + "\n")
    said = f" over {over}" if over else ""
    say(f"network: an all-reduce reaches {rate / GB:.3g} of {planned / GB:.3g} GB/s{said}")


def network_used(log: str) -> str | None:
    """Return what NCCL's log says that it sends over; None where it does not say.

    >>> network_used("host:1:1 [0] NCCL INFO Using network AWS Libfabric")
    'AWS Libfabric'
    >>> network_used("host:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.4<0>")
    'Socket'
    """
    named = USES.findall(log)
    if named:
        return named[-1].strip()
    found = FOUND.search(log)
    return None if found is None else found.group(1) or found.group(2)


def _bus_bytes_per_s(processes: Processes, for_s: float) -> float:
    """Return the bus bandwidth of all-reduces over that time; the first one opens connections."""
    device = processes.device
    size = CUDA_BYTES if device.type == "cuda" else CPU_BYTES
    values = torch.zeros(size // 4, dtype=torch.float32, device=device)
    times: list[float] = []
    began_s = time.perf_counter()
    over = False
    while not over:
        # The first process ends it for all: its wish is part of what is summed.
        is_late = time.perf_counter() - began_s >= for_s and len(times) >= MIN_ROUNDS
        values.zero_()
        values[0] = float(processes.is_first and is_late)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        from_s = time.perf_counter()
        dist.all_reduce(values)
        over = bool(values[0].item() > 0)
        times.append(time.perf_counter() - from_s)
    share = 2 * (processes.world - 1) / processes.world
    return share * size / statistics.median(times[1:])


def _text(folder: Path) -> str:
    said = []
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(OSError):
            said.append(path.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(said)
