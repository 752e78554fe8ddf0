"""Data-parallel layouts: step times and memory of many layouts and variants at once.

The ranks of most layouts run the same kernels (`same_kernels.py`), which are timed once per device
for all recompute policies and micro-batches (*variants*, V). What remains for each site and layout
(L) is a handful of collectives and vector operations over the variants. The physics is the
prediction's own (`predict/step_time.py`, `predict/peak_memory.py`); here is only what several sites
share.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from ....catalog.types import Accelerator
from ....catalog.vocabulary import Recompute, Stack
from ...hardware.cluster import Site
from ...hardware.device import capacity_bytes
from ...memory.framework_memory import communicators
from ...memory.no_sync import NO_SYNC
from ...plan.layout import Layout
from ...plan.setup import Setup
from ...predict.host_work import host_bytes
from ...predict.interval import safe_allocator_bytes, safe_peak_bytes, usual_sigma
from ...predict.kept.kept_values import setup_text
from ...predict.kept.model_cache import ModelCache
from ...predict.memory.peak_memory import data_parallel_memory, framework_of
from ...predict.step_time import Variants, data_parallel_parts, variants_of
from ...software.kept_memory import compiles_whole
from ...step.data_parallel_step import StepTimes
from ..search_space import Space
from .some_layers import FRAGMENTATION, ends_of, equal_layers, least_share

USUAL_FRAGMENTATION = 1.02
"""Reserved ÷ allocated assumed while searching; the plans shown replay the allocator."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SomeLayers:
    """Recompute of some of the layers: where all fit, and none does not."""

    share: np.ndarray
    """[L, B] the least part of the layers; NaN where there is none."""
    accum: np.ndarray
    """[L, B]"""
    parts: StepTimes
    """[L, B]"""


@dataclass
class DataParallelPredictor:
    """Predicts data-parallel layouts; what sites share is made once.

    The setups it is asked about differ in layout, precision, stack and batch alone.
    """

    cache: ModelCache
    space: Space
    _variants: dict[tuple[object, ...], Variants] = field(default_factory=dict)
    _peaks: dict[tuple[object, ...], np.ndarray] = field(default_factory=dict)
    _layout_peaks: dict[tuple[object, ...], np.ndarray] = field(default_factory=dict)

    @property
    def micro_batch(self) -> np.ndarray:
        """[V] micro-batches of the variants."""
        return np.tile(self.space.micro_batches, len(self.space.recomputes))

    @property
    def recompute(self) -> tuple[Recompute, ...]:
        """[V] recompute policies of the variants."""
        return tuple(one for one in self.space.recomputes for _ in self.space.micro_batches)

    def variants(self, accelerator: Accelerator, base: Setup) -> Variants:
        """Return kernel times on a device of every recompute policy and micro-batch."""
        key = (
            accelerator.name,
            base.precision,
            base.frozen_precision,
            base.stack,
            base.autocast,
            compiles_whole(base),
        )
        if key not in self._variants:
            self._variants[key] = variants_of(
                self.cache, accelerator, base, self.space.recomputes, self.space.micro_batches
            )
        return self._variants[key]

    def accumulation(
        self, layouts: tuple[Layout, ...], micro_batch: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return ([L, V] accumulation steps, [L, V] whether they make the global batch exactly)."""
        at_once = micro_batch * data_ranks(layouts)
        wanted = self.space.global_batch
        if self.space.grad_accums:
            accum = np.full_like(at_once, self.space.grad_accums[0])
        elif wanted is None:
            accum = np.ones_like(at_once)
        else:
            accum = np.maximum(wanted // at_once, 1)
        if wanted is None:
            return accum, np.ones(accum.shape, dtype=bool)
        return accum, accum * at_once == wanted

    def fits(
        self,
        site: Site,
        layouts: tuple[Layout, ...],
        base: Setup,
        accum: np.ndarray,
        *,
        max_oom: float,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return [L, V] whether the device, and the host of what is offloaded, hold the peak.

        The second array says whether the device does so but for a chance of `max_oom`. No kernel is
        timed, so that nothing is where nothing fits.
        """
        outside = self._framework_bytes(site, layouts, base)
        reserved = self.peak_bytes(layouts, base, accum) * USUAL_FRAGMENTATION
        capacity = capacity_bytes(site.accelerator)
        fits = reserved + outside <= capacity
        # No data-parallel layout has a margin or an error of its own, so one stands for all.
        safe = safe_peak_bytes(
            reserved, outside, stack=base.stack, layout=layouts[0], max_oom=max_oom
        )
        if base.offload and site.host_memory_bytes is not None:
            activations = self.variants(site.accelerator, base).offloaded_activation_bytes
            on_host = host_bytes(self.cache, base, layouts, activation_bytes=activations)
            fits = fits & (on_host * site.per_node <= site.host_memory_bytes)
        return fits, fits & (safe <= capacity)

    def peak_bytes(self, layouts: tuple[Layout, ...], base: Setup, accum: np.ndarray) -> np.ndarray:
        """Return [L, V] allocated peaks of all variants, which accumulate so many micro-batches."""
        # Memory tells one micro-batch from several; under `no_sync` also two from more.
        passes = np.minimum(accum, 3 if NO_SYNC in base.features else 2)
        counts = np.unique(passes).tolist()
        peaks = {count: self._peaks_of(layouts, base, passes=count) for count in counts}
        return np.select([passes == count for count in counts], list(peaks.values()))

    def parts(
        self, site: Site, layouts: tuple[Layout, ...], variants: Variants, accum: np.ndarray
    ) -> StepTimes:
        """Return [L, V] steps."""
        return data_parallel_parts(self.cache, site, layouts, variants, accum)

    def some_layers(
        self,
        site: Site,
        layouts: tuple[Layout, ...],
        variants: Variants,
        accum: np.ndarray,
        wanted: np.ndarray,
        *,
        max_oom: float,
    ) -> SomeLayers | None:
        """Return what recompute of only some layers takes; None where it is wanted nowhere.

        Args:
            site: device and links.
            layouts: [L].
            variants: [V] of all policies.
            accum: [L, V] micro-batches of a step.
            wanted: [L, V] which would be worth it, were their time that of no recompute.
            max_oom: chance of running out of memory that is accepted.
        """
        base, sizes = variants.setup, len(self.space.micro_batches)
        ends = ends_of(self.space.recomputes, self.cache.profile)
        if ends is None or base.offload:
            return None
        none, full = (slice(end * sizes, (end + 1) * sizes) for end in ends)
        if not wanted[:, none].any():
            return None
        outside = self._framework_bytes(site, layouts, base)
        room = safe_allocator_bytes(
            capacity_bytes(site.accelerator),
            outside,
            margin=np.zeros(1),
            sigma=np.full(1, usual_sigma(base.stack)),
            max_oom=max_oom,
        )
        peaks = self.peak_bytes(layouts, base, accum)
        layers = equal_layers(self.cache.profile)
        share = least_share(peaks[:, none], peaks[:, full], room / FRAGMENTATION, layers=layers)
        share = np.where((share > 0) & (share < 1) & wanted[:, none], share, np.nan)
        if np.isnan(share).all():
            return None
        times = variants.times.between(none, full, np.nan_to_num(share, nan=1.0))
        some = replace(variants, times=times, micro_batch=variants.micro_batch[full])
        own = accum[:, full]
        return SomeLayers(share=share, accum=own, parts=self.parts(site, layouts, some, own))

    def _framework_bytes(self, site: Site, layouts: tuple[Layout, ...], base: Setup) -> np.ndarray:
        """Return [L, 1] bytes that a process holds outside the allocator's pool."""
        opened = _communicators(layouts, base.stack)
        held = {
            count: framework_of(site, replace(base, layout=layout))
            for count, layout in dict(zip(opened, layouts, strict=True)).items()
        }
        return np.array([[held[count]] for count in opened])

    def _peaks_of(self, layouts: tuple[Layout, ...], base: Setup, *, passes: int) -> np.ndarray:
        """Return [L, V] allocated peaks; many sites share the same layouts."""
        key = (
            layouts,
            base.precision,
            base.frozen_precision,
            base.stack,
            base.autocast,
            passes,
        )
        if key not in self._peaks:
            self._peaks[key] = np.array(
                [self._layout_peak(layout, base, passes=passes) for layout in layouts]
            )
        return self._peaks[key]

    def _layout_peak(self, layout: Layout, base: Setup, *, passes: int) -> np.ndarray:
        """Return [V] allocated peaks; they do not depend on the device."""
        key = (
            base.precision,
            base.frozen_precision,
            base.stack,
            base.autocast,
            layout.zero_stage,
            layout.shard,
            layout.data > 1,
            passes,
        )
        if key not in self._layout_peaks:
            setup = replace(base, layout=layout, grad_accum=passes)
            policies = [replace(setup, recompute=one) for one in self.space.recomputes]

            def made() -> list[float]:
                peaks = [
                    data_parallel_memory(self.cache, one, self.space.micro_batches).peak_bytes
                    for one in policies
                ]
                return np.concatenate(peaks).tolist()

            tried = (self.space.recomputes, self.space.micro_batches.tolist())
            asked = ("peaks", *key, setup_text(base), *tried)
            found = self.cache.values.value(asked, made)
            self._layout_peaks[key] = np.array(found, dtype=float)
        return self._layout_peaks[key]


@lru_cache(maxsize=256)
def data_ranks(layouts: tuple[Layout, ...]) -> np.ndarray:
    """Return [L, 1] degrees of the data dimension."""
    return np.array([[layout.data] for layout in layouts])


@lru_cache(maxsize=256)
def _communicators(layouts: tuple[Layout, ...], stack: Stack) -> tuple[int, ...]:
    return tuple(communicators(layout, stack) for layout in layouts)
