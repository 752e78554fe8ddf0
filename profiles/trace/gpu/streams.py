"""Streams, events and NVTX ranges of a machine with one GPU: a trace has one order of kernels.

What files use to copy ahead, to time a step or to name its parts changes nothing that is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

ELAPSED_MS = 1.0
"""Between any two events, so that a file may divide by it."""


class Event:
    """`torch.cuda.Event`, which has always happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        """Note nothing."""

    def wait(self, stream: Any = None) -> None:
        """Wait for nothing."""

    def synchronize(self) -> None:
        """Wait for nothing."""

    def query(self) -> bool:
        """Return that it has happened."""
        return True

    def elapsed_time(self, end: Any) -> float:
        """Return milliseconds that say nothing."""
        return ELAPSED_MS


class Stream:
    """`torch.cuda.Stream`, on which nothing is left to do."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.cuda_stream = 0

    def __enter__(self) -> Stream:
        """Enter it, as `with stream:` does."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave it."""

    def wait_stream(self, stream: Any) -> None:
        """Wait for nothing."""

    def wait_event(self, event: Any) -> None:
        """Wait for nothing."""

    def record_event(self, event: Any = None) -> Any:
        """Return the event, or a new one."""
        return Event() if event is None else event

    def synchronize(self) -> None:
        """Wait for nothing."""

    def query(self) -> bool:
        """Return that nothing is left to do."""
        return True

    def is_capturing(self) -> bool:
        """Return that no graph is made of it."""
        return False


@contextmanager
def _on(stream: Any) -> Iterator[None]:
    yield


def record_stream(tensor: torch.Tensor, stream: Any) -> None:
    """Note nothing: blocks of the replayed allocator have one stream."""


def _answering(make: Callable[[], Any]) -> Callable[..., Any]:
    """Return a new function each time: torch._dynamo keeps a rule by function, and one only."""
    return lambda *_, **__: make()


CUDA_STREAMS: dict[str, Any] = {
    "Event": Event,
    "Stream": Stream,
    "stream": _on,
    "current_stream": _answering(Stream),
    "is_current_stream_capturing": _answering(lambda: False),
    "default_stream": _answering(Stream),
    "set_stream": _answering(lambda: None),
}
"""Of torch.cuda."""
NVTX: dict[str, Any] = {
    name: _answering(lambda: None)
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark")
}
"""Of torch.cuda.nvtx; its `range` calls them."""
