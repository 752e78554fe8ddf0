"""The models of run records, each on its bench: its Profile, and the setup of a run of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from ...catalog.errors import GpuplanError
from ...planner.plan.setup import Setup
from ...planner.predict.kept.kept_tables import KeptTables
from ...planner.predict.kept.model_cache import ModelCache
from ...planner.predict.memory.peak_memory import is_roomy, memory_parts
from ...planner.validation.folds import Protocol, held_out_accelerators, held_out_constants
from ...planner.validation.unstated_recompute import recompute_to_fit
from ...profiles.curves.choice import USUAL_CURVES, CurveChoice
from ...profiles.passes.optimizers import with_optimizer
from ...profiles.profile import Profile
from ...profiles.records import RunRecord
from .cases import Case

VARIANTS = ("_masked", "_written_out")
"""What the file of a variant is named beside that of the model: one that masks, or whose norms are
written out."""


class Benches:
    """One model cache per Profile and optimizer, made when it is first asked for."""

    def __init__(
        self,
        profiles: Mapping[str, Profile | GpuplanError],
        curve_choice: CurveChoice = USUAL_CURVES,
        kept: KeptTables | None = None,
    ) -> None:
        self._profiles = profiles
        self._kept = kept
        self._curve_choice = curve_choice
        self._benches: dict[tuple[str, str | None], ModelCache] = {}

    def cache(self, key: str, optimizer: str | None) -> ModelCache:
        """Return the cache of one model; raises the error that profiling it ended with."""
        if (key, optimizer) not in self._benches:
            profile = self._profiles[key]
            if isinstance(profile, GpuplanError):
                raise profile
            if optimizer not in (None, "none"):
                profile = with_optimizer(profile, optimizer)
            self._benches[key, optimizer] = ModelCache(
                profile, curve_choice=self._curve_choice, kept=self._kept
            )
        return self._benches[key, optimizer]

    def save(self) -> None:
        """Keep what was found of every model for the next time."""
        for bench in self._benches.values():
            bench.save()


def on_bench(case: Case, benches: Benches) -> tuple[ModelCache, Setup]:
    """Return the cache of a run's model, and its setup with nothing left open."""
    assert case.request is not None
    assert case.setup is not None
    cache = benches.cache(case.request.key, case.setup.optimizer)
    if case.record.recompute is None and not case.is_decided:
        _decide_recompute(case, cache, _as_cached(case.setup))
    return cache, _as_cached(case.setup)


def _as_cached(setup: Setup) -> Setup:
    """Return the setup without its optimizer, which the cache of its model holds already."""
    return setup if setup.optimizer == "none" else replace(setup, optimizer=None)


def _decide_recompute(case: Case, cache: ModelCache, setup: Setup) -> None:
    """Find out, once, what a run recomputed of which its source says nothing."""
    assert case.run is not None
    assert case.setup is not None
    case.is_decided = True
    site = case.run.site
    recomputed = recompute_to_fit(
        setup, lambda one: is_roomy(cache, site, one, memory_parts(cache, one))
    )
    case.fits_recomputed = recomputed is not None
    if recomputed is not None and setup.stack.startswith("torch"):
        case.setup = replace(case.setup, recompute=recomputed.recompute)
        case.assumed.append("recompute=full (without it the run would not fit)")


def held_out(
    cache: ModelCache,
    protocol: Protocol | None,
    *,
    configuration: str,
    source: str,
    accelerator: str,
) -> ModelCache:
    """Return a cache that predicts a run as if it and all others of its fold were never seen."""
    constants = held_out_constants(
        protocol, configuration=configuration, source=source, accelerator=accelerator
    )
    hidden = held_out_accelerators(protocol, accelerator)
    return cache.with_constants(constants).with_curves(cache.curve_choice.without(hidden))


def configuration(record: RunRecord) -> str:
    """Return text that is equal for runs of one model in one layout.

    A variant of a model file (`bert_masked.py`) is the same model: its runs stay in the fold that
    the constants were fitted without.
    """
    model = record.model
    for variant in VARIANTS:
        model = model.replace(variant, "")
    parts = (model, record.params, record.layout.model_dump())
    return json.dumps(parts, sort_keys=True, default=str)
