"""What `torch.accelerator` answers on a machine with one GPU, whatever torch was built for.

A build for CUDA asks the driver, and fails where there is none, as on most laptops; one for
processors knows of no accelerator. Optimizers ask at every step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch

from ..kernels.operations import words
from .streams import Stream

MEMORY_BYTES = 80 * 10**9
"""Of the device that files are told of."""


class DeviceIndex:
    """`torch.accelerator.device_index`: there is one device."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> None:
        """Stay on the device."""

    def __exit__(self, *_: object) -> None:
        """Stay on the device."""


def accelerator_answers() -> list[Any]:
    """Return the patches of `torch.accelerator`; none where torch has no such module."""
    module = getattr(torch, "accelerator", None)
    if module is None:
        return []
    answers = {name: answer for name, answer in _answers().items() if hasattr(module, name)}
    return [patch.object(module, name, answer) for name, answer in answers.items()]


def _answers() -> dict[str, Any]:
    return {
        "current_accelerator": _answering(lambda: torch.device("cuda")),
        "is_available": _answering(lambda: True),
        "device_count": _answering(lambda: 1),
        "device_index": DeviceIndex,
        "current_stream": _answering(Stream),
        "get_memory_info": _answering(lambda: (MEMORY_BYTES, MEMORY_BYTES)),
        "memory_stats": _answering(lambda: defaultdict(int)),
        **{
            name: _answering(lambda: 0)
            for name in words(
                """current_device_index current_device_idx memory_allocated max_memory_allocated
                memory_reserved max_memory_reserved"""
            )
        },
        **{
            name: _answering(lambda: None)
            for name in words(
                """set_device_index set_device_idx set_stream synchronize empty_cache
                empty_host_cache reset_accumulated_memory_stats reset_peak_memory_stats"""
            )
        },
    }


def _answering(make: Callable[[], Any]) -> Callable[..., Any]:
    """Return a new function each time: torch._dynamo keeps a rule by function, and one only."""
    return lambda *_, **__: make()
