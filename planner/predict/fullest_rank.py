"""What the ranks of a setup hold of the model: parameters by pipeline stage, and of the fullest."""

from __future__ import annotations

from ..parallelism.rank_parameters import RankUnits, rank_units
from ..parallelism.rank_trace import Split
from .model_cache import Workbench
from .setup import Setup


def units_by_stage(bench: Workbench, setup: Setup) -> list[RankUnits]:
    """Return what one rank of each pipeline stage holds."""
    numerics = bench.numerics(setup.precision, autocast=setup.autocast)
    return rank_units(
        bench.profile,
        bench.units_in(setup.stack),
        bench.trace_in(numerics, "none"),
        setup.layout,
        Split.of(setup.layout, setup.stack),
    )


def fullest_rank(bench: Workbench, setup: Setup) -> RankUnits:
    """Return what a rank of the stage with most trainable parameters holds."""
    return max(units_by_stage(bench, setup), key=lambda one: one.trainable)


def stepped_parameters(bench: Workbench, setup: Setup) -> float:
    """Return the trainable parameters that the fullest rank's optimizer steps."""
    layout = setup.layout
    if layout.is_data_parallel_only:
        ranks = layout.shard if layout.zero_stage else 1
        return bench.profile.trainable_parameters / ranks
    fullest = fullest_rank(bench, setup)
    return fullest.sharded(layout) if layout.zero_stage else fullest.trainable
