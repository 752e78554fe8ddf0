"""What the ranks of a setup hold of the model: parameters by pipeline stage, and of the fullest."""

from __future__ import annotations

from ..parallelism.legal_layouts import Shape
from ..parallelism.rank_parameters import RankUnits, split_units
from ..parallelism.rank_trace import Split
from ..plan.setup import Setup
from ..software.dispatch import SPLIT_BY_TENSOR
from .kept.model_cache import ModelCache


def units_by_stage(cache: ModelCache, setup: Setup) -> list[RankUnits]:
    """Return what one rank of each pipeline stage holds."""
    numerics = cache.numerics(setup.precision, autocast=setup.autocast)
    layout = Shape.of(setup.layout)._replace(sequence_parallel=False).smallest()
    units = cache.steps.units_in(setup.stack)
    splits_experts = SPLIT_BY_TENSOR in setup.features

    def make() -> list[RankUnits]:
        trace = cache.steps.trace_in(numerics, "none")
        split = Split.of(layout, setup.stack, splits_experts=splits_experts)
        parts = cache.shared(
            ("split units", units, numerics, split),
            lambda: split_units(cache.profile, units, trace, split),
        )
        # Equal ones are one object, for units are compared by identity.
        return [
            cache.shared(
                ("units", layout.tensor, split.expert_tensor, layout.expert, *one.sizes),
                lambda one=one: one,
            )
            for one in parts.by_stage(layout)
        ]

    return cache.shared(("stages", units, numerics, layout, setup.stack, splits_experts), make)


def fullest_rank(cache: ModelCache, setup: Setup) -> RankUnits:
    """Return what a rank of the stage with most trainable parameters holds."""
    return max(units_by_stage(cache, setup), key=lambda one: one.trainable)


def stepped_parameters(cache: ModelCache, setup: Setup) -> float:
    """Return the trainable parameters that the fullest rank's optimizer steps."""
    layout = setup.layout
    if layout.is_data_parallel_only:
        ranks = layout.shard if layout.zero_stage else 1
        return cache.profile.trained_parameters / ranks
    fullest = fullest_rank(cache, setup)
    return fullest.sharded(layout) if layout.zero_stage else fullest.trainable
