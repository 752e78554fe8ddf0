"""What the software of a tuned layout could run at its date: our best is searched within that.

A layout that a stack did not offer says nothing of how well somebody tuned theirs. Keys are the
stack and the date; what is not listed here offers all that the search knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuplan.catalog.vocabulary import Precision, Recompute
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import Choices

SEQUENCE_PARALLEL_SINCE = "2022-05"
"""Sequence parallelism and recompute of attention alone (Korthikanti et al., arXiv:2205.05198)."""
TITAN_ACCUMULATES_SINCE = "2025-06"
"""torchtitan's gradient accumulation (pytorch/torchtitan#1238, merged 2025-06-05)."""
EVERY_NTH = (2, 3, 4)
"""torchtitan recomputes every nth layer, not any number of them (`selective_ac_option`)."""


@dataclass(frozen=True, kw_only=True)
class Offered:
    """What a stack could run, of what the search knows."""

    recomputes: tuple[Recompute, ...] = ("none", "selective", "full")
    any_layers: bool = True
    """Whether any number of layers can be recomputed."""
    every_nth: tuple[int, ...] = ()
    """Whether, without that, every nth of them can be."""
    sequence_parallel: bool = True
    interleaved: bool = True
    """Whether a stage may have several chunks."""
    accumulates: bool = True
    """Whether a step may have several micro-batches without a pipeline."""
    zero_stages: frozenset[int] = frozenset({0, 1, 2, 3})
    zero_stages_of_pipelines: frozenset[int] = frozenset({0, 1, 2, 3})

    def has(self, layout: Layout) -> bool:
        """Return whether a layout can be run at all."""
        stages = self.zero_stages_of_pipelines if layout.pipeline > 1 else self.zero_stages
        is_sharded = layout.data * layout.context > 1
        return (self.interleaved or layout.virtual_stages == 1) and (
            not is_sharded or layout.zero_stage in stages
        )

    def choices(self, precision: Precision, layers: int) -> Iterator[Choices]:
        """Yield the questions that together ask for all that is offered.

        Args:
            precision: of the row.
            layers: of the model, were they all equal; else 0.
        """
        if self.any_layers:
            yield Choices(precisions=(precision,), recomputes=self.recomputes)
            return
        # A policy alone: between none and full the search takes any number of layers.
        for recompute in self.recomputes:
            yield Choices(precisions=(precision,), recomputes=(recompute,))
        for nth in self.every_nth:
            if layers > nth:
                yield Choices(
                    precisions=(precision,), recomputes=("full",), recompute_layers=layers // nth
                )


def offered(record: dict[str, Any]) -> Offered:
    """Return what the software of a row could run.

    Megatron-DeepSpeed before May 2022 is BigScience's: its pipelines are DeepSpeed's, which have no
    chunks, checkpoint by a fixed interval, and go with ZeRO-1 at most (deepspeed/runtime/pipe).
    torchtitan shards with FSDP.
    """
    if is_titan(record):
        return Offered(
            any_layers=False,
            every_nth=EVERY_NTH,
            accumulates=record["date"] >= TITAN_ACCUMULATES_SINCE,
            zero_stages=frozenset({3}),
            zero_stages_of_pipelines=frozenset({3}),
        )
    if record["date"] < SEQUENCE_PARALLEL_SINCE:
        return Offered(
            recomputes=("none", "full"),
            any_layers=False,
            sequence_parallel=False,
            interleaved=False,
            zero_stages_of_pipelines=frozenset({0, 1}),
        )
    return Offered()


def is_titan(record: dict[str, Any]) -> bool:
    """Return whether a row is of torchtitan."""
    return "torchtitan" in record["source"]
