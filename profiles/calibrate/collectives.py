"""Collectives among the devices of one machine, timed in a process for each rank."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import quantiles
from typing import Any

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing

from .kernels import Timing
from .schedule import Point

ANSWER_WITHIN_S = 60.0
_TARGET_S = 0.05
_FEWEST, _MOST = 5, 50


class RankGroup:
    """Processes that run collectives together; one group at a time.

    Args:
        ranks: How many devices take part.
        device: "cuda" (NCCL, one device a rank) or "cpu" (Gloo).
    """

    def __init__(self, ranks: int, device: str) -> None:
        self.ranks = ranks
        self._folder = tempfile.TemporaryDirectory(prefix="gpuplan-ranks-")
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Any] = []
        self._processes = []
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            arguments = (rank, ranks, device, str(Path(self._folder.name) / "store"), theirs)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def timed(self, point: Point) -> Timing:
        """Return how long the slowest rank takes.

        Raises:
            RuntimeError: The collective does not run here, or did not end.
        """
        for pipe in self._pipes:
            pipe.send((point.dtype, point.shape[1]))
        limit_s = time.monotonic() + ANSWER_WITHIN_S
        answers: list[list[float]] = []
        for pipe in self._pipes:
            if not pipe.poll(max(0.0, limit_s - time.monotonic())):
                raise TimeoutError(f"no answer within {ANSWER_WITHIN_S:.0f} s")
            answer = pipe.recv()
            if isinstance(answer, str):
                raise RuntimeError(answer)
            answers.append(answer)
        times_s = [max(together) for together in zip(*answers, strict=True)]
        tenths = quantiles(times_s, n=10)
        return Timing(tenths[4], (tenths[8] - tenths[0]) / tenths[4], len(times_s))

    def close(self) -> None:
        """End every process."""
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            pipe.close()
            process.kill()
            process.join()
        self._folder.cleanup()


def _serve(rank: int, ranks: int, device: str, store: str, pipe: Connection) -> None:
    """Answer requests with the seconds of every repeat, until the pipe closes."""
    with contextlib.suppress(EOFError):
        try:
            _join(rank, ranks, device, store)
        except Exception as error:
            pipe.recv()
            pipe.send(_one_line(error))
            return
        while True:
            kind, size_bytes = pipe.recv()
            try:
                pipe.send(_times_s(kind, size_bytes, ranks, device))
            except Exception as error:
                pipe.send(_one_line(error))


def _join(rank: int, ranks: int, device: str, store: str) -> None:
    if device == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=Path(store).as_uri(),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=ANSWER_WITHIN_S),
    )


def _times_s(kind: str, size_bytes: int, ranks: int, device: str) -> list[float]:
    call = _collective(kind, size_bytes, ranks, device)
    elapsed_s = _device_clock if device == "cuda" else _host_clock
    for _ in range(2):
        call()
    # All ranks must agree on how often to repeat.
    first = torch.tensor([elapsed_s(call)], device=device)
    distributed.all_reduce(first, op=distributed.ReduceOp.MAX)
    repeats = max(_FEWEST, min(_MOST, int(_TARGET_S / max(float(first), 1e-6))))
    times_s = []
    for _ in range(repeats):
        distributed.barrier()
        times_s.append(elapsed_s(call))
    return times_s


def _collective(kind: str, size_bytes: int, ranks: int, device: str) -> Callable[[], Any]:
    """Return the call; `size_bytes` is the gathered output, or the input of the others."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    part = max(1, size_bytes // ranks // dtype.itemsize)
    whole = torch.zeros(part * ranks, dtype=dtype, device=device)
    piece = torch.zeros(part, dtype=dtype, device=device)
    if kind == "all_reduce":
        return lambda: distributed.all_reduce(whole)
    if kind == "all_gather":
        return lambda: distributed.all_gather_into_tensor(whole, piece)
    if kind == "reduce_scatter":
        return lambda: distributed.reduce_scatter_tensor(piece, whole)
    other = torch.empty_like(whole)
    return lambda: distributed.all_to_all_single(other, whole)


def _device_clock(call: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def _host_clock(call: Callable[[], Any]) -> float:
    start_s = time.perf_counter()
    call()
    return time.perf_counter() - start_s


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
