"""The memory that candidates take, where plans are to be ordered by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..plan.setup import Setup
from ..predict.kept.model_cache import ModelCache
from ..predict.memory.peak_memory import framework_of, memory_parts
from .candidate import Candidate
from .layouts.data_parallel import USUAL_FRAGMENTATION


def with_peaks(candidates: Sequence[Candidate], cache: ModelCache) -> Iterator[Candidate]:
    """Yield the candidates with the peak of their fullest device, before its replay.

    Args:
        candidates: of one search; many machines share a setup, whose memory is predicted once.
        cache: the model.
    """
    known: dict[Setup, float] = {}
    for one in candidates:
        setup = one.setup
        if setup not in known:
            known[setup] = float(memory_parts(cache, setup).peak_bytes.max())
        peak = known[setup] * USUAL_FRAGMENTATION + framework_of(one.site, setup)
        yield replace(one, peak_bytes=peak)
