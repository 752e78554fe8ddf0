"""How far the mean time of a step lies above its likely one: expected costs count with the mean."""

from __future__ import annotations

from ..goodput.expected_run import mean_training_s
from ..hardware.cluster import Site
from ..plan.setup import Setup
from ..predict.input_wait import input_needed, with_input
from ..predict.kept.model_cache import ModelCache
from ..predict.step_time import estimated_step_s
from ..step.data_parallel_step import StepTimes


def mean_over_likely(cache: ModelCache, site: Site, setup: Setup, parts: StepTimes) -> float:
    """Return the mean time of a step over its likely one, as the finished plan has it.

    Args:
        cache: the model.
        site: the nodes it runs on, all of them.
        setup: layout, precision and the rest.
        parts: of its step, [1, 1].
    """
    needed = input_needed(cache.profile, site, setup)
    step = with_input(estimated_step_s(cache, site, setup, parts), needed)
    return mean_training_s(step) / step.value
