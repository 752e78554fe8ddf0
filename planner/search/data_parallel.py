"""Data-parallel layouts: step times and memory of many layouts and variants at once.

Every rank runs the same kernels whatever the layout, so they are timed once per device for all
recompute policies and micro-batches (*variants*, V). What remains for each site and layout (L) is a
handful of collectives and vector operations over the variants.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ...catalog.types import Accelerator
from ..hardware.cluster import Site
from ..hardware.device import capacity_bytes
from ..memory.framework_memory import communicators, framework_bytes
from ..plan.layout import Layout
from ..plan.plan import RecomputeKind
from ..predict.host_work import activations_on_host, data_parallel_host_work, host_bytes
from ..predict.model_cache import ModelCache
from ..predict.peak_memory import memory_of
from ..predict.setup import Setup, accumulation_bytes, stack_facts, wire_bytes
from ..step.data_parallel_comm import data_traffic
from ..step.data_parallel_step import accumulation_s, optimizer_s, step_times
from ..step.kernel_totals import MicroBatchTimes
from .search_space import Space

USUAL_FRAGMENTATION = 1.02
"""Reserved ÷ allocated assumed while searching; the plans shown replay the allocator."""


@dataclass(frozen=True, kw_only=True)
class Variants:
    """One device and precision: kernel times for every recompute policy and micro-batch [V]."""

    base: Setup
    times: MicroBatchTimes
    recompute: list[RecomputeKind]
    micro_batch: np.ndarray


@dataclass
class Family:
    """Predicts data-parallel layouts; what sites share is made once.

    The setups it is asked about differ in layout, precision, stack and batch alone.
    """

    cache: ModelCache
    space: Space
    _variants: dict[tuple[object, ...], Variants] = field(default_factory=dict)
    _peaks: dict[tuple[object, ...], np.ndarray] = field(default_factory=dict)
    _layout_peaks: dict[tuple[object, ...], np.ndarray] = field(default_factory=dict)

    def variants(self, accelerator: Accelerator, base: Setup) -> Variants:
        """Return kernel times on a device of every recompute policy and micro-batch."""
        key = (accelerator.name, base.precision, base.stack, base.autocast)
        if key not in self._variants:
            sizes, recomputes = self.space.micro_batches, self.space.recomputes
            times = self.cache.times(
                accelerator,
                base.precision,
                recomputes,
                stack=stack_facts(base),
                micro_batches=sizes,
            )
            self._variants[key] = Variants(
                base=base,
                times=MicroBatchTimes.stack([one.micro_batch() for one in times]),
                recompute=[r for r in recomputes for _ in sizes],
                micro_batch=np.tile(sizes, len(recomputes)),
            )
        return self._variants[key]

    def accumulation(
        self, layouts: tuple[Layout, ...], micro_batch: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return ([L, V] accumulation steps, [L, V] whether they make the global batch exactly)."""
        at_once = micro_batch * np.array([[layout.data] for layout in layouts])
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
        self, site: Site, layouts: tuple[Layout, ...], base: Setup, accum: np.ndarray
    ) -> np.ndarray:
        """Return [L, V] whether the device, and the host of what is offloaded, hold the peak."""
        peak = self._family_peaks(layouts, base, accumulates=False)
        if (accum > 1).any():
            peak = np.where(accum > 1, self._family_peaks(layouts, base, accumulates=True), peak)
        framework = {
            n: framework_bytes(site.accelerator, communicators=n)
            for n in {communicators(layout, base.stack) for layout in layouts}
        }
        outside = np.array([[framework[communicators(layout, base.stack)]] for layout in layouts])
        fits = peak * USUAL_FRAGMENTATION + outside <= capacity_bytes(site.accelerator)
        if base.offload and site.host_memory_bytes is not None:
            activations = self._activations_on_host(base)
            on_host = host_bytes(self.cache, base, layouts, activation_bytes=activations)
            fits = fits & (on_host * site.per_node <= site.host_memory_bytes)
        return fits

    def step_s(
        self, site: Site, layouts: tuple[Layout, ...], variants: Variants, accum: np.ndarray
    ) -> np.ndarray:
        """Return [L, V] step times."""
        curves = self.cache.curves(site.accelerator)
        stack = stack_facts(variants.base)
        wire = wire_bytes(variants.base.precision, variants.base.stack)
        parts = step_times(
            variants.times,
            data_traffic(self.cache.units_in(variants.base.stack), layouts, site, curves, wire),
            optimizer_s=optimizer_s(self.cache.profile, layouts, curves, stack),
            step_overhead_s=stack.step_overhead_s,
            grad_accum=accum,
            accumulation_s=accumulation_s(
                self.cache.profile, layouts, curves, accumulation_bytes(variants.base)
            ),
        )
        if not variants.base.offload:
            return parts.total_s
        work = data_parallel_host_work(
            self.cache,
            site,
            variants.base,
            layouts,
            activation_bytes=self._activations_on_host(variants.base),
        )
        return work.added_to(
            parts,
            forward_s=variants.times.forward_s,
            backward_s=variants.times.backward_s,
            grad_accum=accum,
        ).total_s

    def _activations_on_host(self, base: Setup) -> np.ndarray:
        """Return [V] bytes of one micro-batch's activations that are offloaded."""
        setups = [
            replace(base, recompute=recompute, micro_batch=int(size))
            for recompute in self.space.recomputes
            for size in self.space.micro_batches
        ]
        return np.array([activations_on_host(self.cache, setup) for setup in setups])

    def _family_peaks(
        self, layouts: tuple[Layout, ...], base: Setup, *, accumulates: bool
    ) -> np.ndarray:
        """Return [L, V] allocated peaks; many sites share the same layouts."""
        key = (layouts, base.precision, base.stack, base.autocast, accumulates)
        if key not in self._peaks:
            self._peaks[key] = np.array(
                [self._layout_peak(layout, base, accumulates=accumulates) for layout in layouts]
            )
        return self._peaks[key]

    def _layout_peak(self, layout: Layout, base: Setup, *, accumulates: bool) -> np.ndarray:
        """Return [V] allocated peaks; they do not depend on the device."""
        key = (
            base.precision,
            base.stack,
            base.autocast,
            layout.zero_stage,
            layout.shard,
            layout.data > 1,
            accumulates,
        )
        if key not in self._layout_peaks:
            setup = replace(base, layout=layout, grad_accum=2 if accumulates else 1)
            peaks = []
            for recompute in self.space.recomputes:
                shape = self.cache.envelope(
                    base.precision,
                    recompute,
                    self.space.micro_batches,
                    autocast=base.autocast,
                    residence=base.residence,
                )
                peaks.append(memory_of(self.cache, setup, shape).peak_bytes)
            self._layout_peaks[key] = np.concatenate(peaks)
        return self._layout_peaks[key]
