"""What is derived from one Profile, each made once: recomputed traces, plateaus, kernel times."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TypeVar, cast

import numpy as np

from ....catalog.errors import UsageError
from ....catalog.types import Accelerator
from ....catalog.vocabulary import FrozenPrecision, Precision, Recompute, Stack
from ....profiles.analysis.caching_allocator import PoolExhaustedError, replay
from ....profiles.curves.choice import USUAL_CURVES, CurveChoice
from ....profiles.curves.device_curves import DeviceCurves, curves_for
from ....profiles.missing_numerics import AUTOCAST_FAILS, FAILS
from ....profiles.passes.fused_kernels import with_fused_kernels
from ....profiles.passes.recompute import recomputed
from ....profiles.passes.residence import ON_DEVICE, Residence, resident
from ....profiles.profile import (
    NUMERICS_OF_PRECISION,
    Affine,
    KernelKind,
    Numerics,
    Profile,
    StepTrace,
)
from ...constants import Constants
from ...hardware.cluster import Site
from ...hardware.collectives import Links
from ...memory.chunked_head import with_chunked_head
from ...memory.plateaus import Envelope, envelope
from ...memory.rank_memory import RankMemory, rank_memory
from ...parallelism.column_row_parallel import is_expert_product
from ...parallelism.fsdp import Unit, units_of
from ...parallelism.rank_trace import Split, SplitTrace, split_trace
from ...plan.layout import Layout
from ...software.frozen_base import with_frozen_base
from ...software.stack import StackFacts
from ...software.state_bytes import StateScale
from ...step.kernel_times import MATMUL_KINDS, kernel_dtype
from ...step.kernel_totals import SegmentTimes, StepKernels, running_segments
from ..measured.residuals import Calibration
from .kept_tables import KeptTables, profile_digest
from .kept_values import KeptValues

Array = np.ndarray
Made = TypeVar("Made")

TIGHT_RATIOS = (1.0, 1.01, 1.02, 1.03, 1.05, 1.08, 1.12)
"""Pool sizes over the allocated peak that are tried when memory is short."""


class ModelCache:
    """What predictions of one Profile share; everything it returns is immutable.

    What is derived from the Profile alone is made once, also for caches with other constants or
    other curves.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        constants: Constants | None = None,
        curve_choice: CurveChoice = USUAL_CURVES,
        kept: KeptTables | None = None,
    ) -> None:
        self.profile = profile
        self.kept = kept
        self.constants = Constants.shipped() if constants is None else constants
        self.curve_choice = curve_choice
        self.calibration: Calibration | None = getattr(profile, "calibration", None)
        self._derived = _Derived(profile)
        self.values = KeptValues(kept, self._facts)
        """Small results that follow from the Profile and the constants alone."""
        self._beside: KeptValues | None = None
        """Those of the cache with a frozen base (`with_frozen`)."""
        self._has_frozen_base = False

    def with_constants(self, constants: Constants) -> ModelCache:
        """Return a cache of the same Profile that predicts with other constants."""
        other = copy(self)
        other.constants = constants
        other.values = KeptValues(other.kept, other._facts)
        return other

    def with_curves(self, choice: CurveChoice) -> ModelCache:
        """Return a cache of the same Profile that predicts with other curves."""
        other = copy(self)
        other.curve_choice = choice
        return other

    def save(self) -> None:
        """Keep the values that were found for the next search of this model."""
        self.values.save()
        if self._beside is not None:
            self._beside.save()

    def _facts(self) -> dict[str, object]:
        return {
            "what": "values of a model",
            "profile": self.profile_digest,
            "constants": sorted(self.constants.items()),
        }

    def with_frozen(self, frozen: FrozenPrecision | None) -> ModelCache:
        """Return a cache whose step under autocast has its frozen parameters in 16 bits.

        That of a 4-bit base is the same: its layers compute in 16 bits.

        Raises:
            UsageError: the Profile was made without that step.
        """
        if frozen is None or self._has_frozen_base:
            return self
        if "frozen16" not in self.profile.numerics():
            raise self._untraced("frozen16")
        other = copy(self)
        other._has_frozen_base = True
        other.profile = self.shared(("frozen base",), lambda: with_frozen_base(self.profile))
        other._derived = self.shared(("what follows from it",), lambda: _Derived(other.profile))
        other.values = self.shared(
            ("kept values of it", id(self.constants)),
            lambda: KeptValues(other.kept, other._facts),
        )
        self._beside = other.values
        return other

    def of(self, profile: Profile) -> ModelCache:
        """Return a cache of another Profile that predicts with the same constants and curves."""
        return ModelCache(profile, constants=self.constants, curve_choice=self.curve_choice)

    @property
    def units(self) -> tuple[Unit, ...]:
        """FSDP units of the model."""
        return self._derived.units

    @property
    def profile_digest(self) -> str:
        """What is equal for equal Profiles (`kept_tables.profile_digest`)."""
        return self._derived.profile_digest

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of kernels in the step, and "experts" where some are products of experts."""
        return self._derived.kinds

    def units_in(self, stack: Stack) -> tuple[Unit, ...]:
        """Return the units as a stack shards them: only torch pads every parameter by its rows."""
        return self.units if stack.startswith("torch") else self._derived.flat_units

    def curves(self, accelerator: Accelerator) -> DeviceCurves:
        """Return the efficiency curves of a device."""
        known = self._derived.curves
        key = (accelerator.name, self.curve_choice)
        if key not in known:
            known[key] = curves_for(accelerator, self.curve_choice)
        return known[key]

    def links(self, site: Site) -> Links:
        """Return what ranks on a site talk over."""
        return Links(site=site, curves=self.curves(site.accelerator), constants=self.constants)

    def trace(self, precision: Precision, recompute: Recompute) -> StepTrace:
        """Return the step in the numerics of `precision` under this recompute policy.

        Raises:
            UsageError: the Profile was made without those numerics.
        """
        return self.trace_in(NUMERICS_OF_PRECISION[precision], recompute)

    def trace_in(
        self,
        numerics: Numerics,
        recompute: Recompute,
        *,
        early_stop: bool = True,
        residence: Residence = ON_DEVICE,
    ) -> StepTrace:
        """Return the step in these numerics under this recompute policy (`recomputed`, `resident`).

        Raises:
            UsageError: the Profile was made without those numerics.
        """
        traces = self._derived.traces
        key = (numerics, recompute, early_stop, residence)
        at_home = replace(ON_DEVICE, fuses=residence.fuses)
        if key not in traces and residence != at_home:
            whole = self.trace_in(numerics, recompute, early_stop=early_stop, residence=at_home)
            found = resident(whole, residence)
            traces[key] = with_chunked_head(found) if residence.loss == "chunked" else found
        if key not in traces:
            try:
                plain = self.profile.step(numerics)
            except KeyError:
                raise self._untraced(numerics) from None
            plain = with_fused_kernels(plain) if residence.fuses else plain
            traces[key] = recomputed(plain, self.profile, recompute, early_stop=early_stop)
        return traces[key]

    def _untraced(self, numerics: Numerics) -> UsageError:
        fails = next((note for note in self.profile.notes if note.startswith(FAILS)), None)
        autocast = next((n for n in self.profile.notes if n.startswith(AUTOCAST_FAILS)), None)
        if autocast:
            return UsageError(f"{autocast}.", fix="correct that line, or give --precision fp32.")
        if numerics == "pure16" and fails:
            return UsageError(
                f"{fails}.", fix="give a layout that runs under autocast, such as dp8 or dp8.zero1."
            )
        if numerics == "frozen16":
            return UsageError(
                "The parameters of this model are not mostly frozen, or a step of it fails with"
                " 16-bit ones.",
                fix="leave out --frozen-precision.",
            )
        return UsageError(
            f"This profile holds no {numerics} trace; it holds"
            f" {', '.join(self.profile.numerics())}.",
            fix="profile the model again with that precision.",
        )

    def envelope(
        self,
        precision: Precision,
        recompute: Recompute,
        micro_batches: Array,
        *,
        autocast: bool = True,
        residence: Residence = ON_DEVICE,
    ) -> Envelope:
        """Return the memory plateaus of that step."""
        numerics = self.numerics(precision, autocast=autocast)
        key = (numerics, recompute, tuple(int(b) for b in micro_batches), residence)
        if key not in self._derived.envelopes:
            trace = self.trace_in(numerics, recompute, residence=residence)
            self._derived.envelopes[key] = envelope(trace, micro_batches)
        return self._derived.envelopes[key]

    def rank_memory(
        self,
        shape: Envelope,
        layout: Layout,
        *,
        gather_bytes: int,
        grad_accum: int,
        state: StateScale,
        reduces_once: bool,
    ) -> RankMemory:
        """Return memory of a rank that runs the whole model (`rank_memory`).

        Precisions that differ on the matrix units alone, as TF32 and FP32 do, take the same bytes.
        """
        key = (shape, layout, gather_bytes, grad_accum, state, reduces_once)
        if key not in self._derived.rank_memories:
            self._derived.rank_memories[key] = rank_memory(
                shape,
                self.profile,
                layout,
                compute_bytes=gather_bytes,
                grad_accum=grad_accum,
                state=state,
                units=self.units,
                reduces_once=reduces_once,
            )
        return self._derived.rank_memories[key]

    def numerics(self, precision: Precision, *, autocast: bool) -> Numerics:
        """Return the trace that runs: 16-bit layers where nothing is cast around them."""
        numerics = NUMERICS_OF_PRECISION[precision]
        return "pure16" if numerics == "amp16" and not autocast else numerics

    def holds(self, precision: Precision, *, autocast: bool) -> bool:
        """Return whether the Profile has the trace that runs (`numerics`)."""
        return self.numerics(precision, autocast=autocast) in self.profile.numerics()

    def multiplies_on(self, accelerator: Accelerator, precision: Precision) -> bool:
        """Return whether a device has a rate for every dtype that the step multiplies in.

        A step in 16 bits may hold products in fp32: of parts that the model keeps out of autocast.
        Which of its traces runs depends on the layout, so a device needs the rates of all of them.
        """
        tried: set[Numerics] = {self.numerics(precision, autocast=one) for one in (True, False)}
        known = self._derived.product_dtypes
        if precision not in known:
            known[precision] = frozenset(
                kernel_dtype(kernel, precision)
                for numerics in tried
                if numerics in self.profile.numerics()
                for segment in self.profile.step(numerics).segments
                for kernel in segment.kernels
                if kernel.kind in MATMUL_KINDS
            )
        others = known[precision] - accelerator.peak_flops.keys()
        return all(self.curves(accelerator).multiplies(dtype) for dtype in others)

    def times(
        self,
        accelerator: Accelerator,
        precision: Precision,
        recomputes: tuple[Recompute, ...],
        *,
        stack: StackFacts,
        micro_batches: Array,
        split: Split | None = None,
    ) -> list[SegmentTimes]:
        """Return kernel times on one device, one result per recompute policy.

        Args:
            accelerator: the device.
            precision: decides the trace and the dtype of its kernels.
            recomputes: policies.
            stack: launch costs and fusion.
            micro_batches: sizes.
            split: how ranks divide the kernels; None for whole ones.
        """
        sizes = tuple(int(b) for b in micro_batches)
        numerics = self.numerics(precision, autocast=stack.autocast)
        early_stop = stack.name != "megatron"
        key = (numerics, recomputes, stack.fuses, early_stop, sizes, split)
        if key not in self._derived.kernels:
            traces = [
                self.trace_in(numerics, recompute, early_stop=early_stop)
                if split is None
                else self.split_in(numerics, recompute, split, early_stop=early_stop).trace
                for recompute in recomputes
            ]
            self._derived.kernels[key] = StepKernels(traces, micro_batches, fused=stack.fuses)
        return self._derived.kernels[key].times(
            self.curves(accelerator),
            precision=precision,
            stack=stack,
            factors=self.calibration.factors(accelerator) if self.calibration else None,
        )

    def kind_seconds(
        self,
        accelerator: Accelerator,
        precision: Precision,
        recompute: Recompute,
        *,
        stack: StackFacts,
        micro_batches: Array,
    ) -> dict[KernelKind, float]:
        """Return device seconds of each kernel kind in one step, uncalibrated."""
        traces = [self.trace(precision, recompute)]
        kernels = StepKernels(traces, micro_batches, fused=stack.fuses)
        return kernels.kind_seconds(self.curves(accelerator), precision=precision, stack=stack)

    def split_in(
        self,
        numerics: Numerics,
        recompute: Recompute,
        split: Split,
        *,
        early_stop: bool = True,
        fuses: bool = False,
    ) -> SplitTrace:
        """Return one rank's share of the step in these numerics under this policy.

        Args:
            numerics: of the step.
            recompute: policy.
            split: how ranks divide it.
            early_stop: whether a block runs again only up to its last saved tensor.
            fuses: whether less is kept for the backward pass (`with_fused_kernels`).

        Raises:
            UnsupportedError: the model cannot be split that way.
        """
        key = (numerics, recompute, split, early_stop, fuses)
        if key not in self._derived.splits:
            home = replace(ON_DEVICE, fuses=fuses)
            trace = self.trace_in(numerics, recompute, early_stop=early_stop, residence=home)
            self._derived.splits[key] = split_trace(trace, split)
        return self._derived.splits[key]

    def fragmentation(
        self,
        precision: Precision,
        recompute: Recompute,
        micro_batch: int,
        *,
        autocast: bool = True,
        tight: bool = False,
        residence: Residence = ON_DEVICE,
    ) -> float:
        """Return reserved ÷ allocated peak of the step on one device, by replaying the pool.

        Args:
            precision: with `autocast`, decides which trace runs.
            recompute: policy.
            micro_batch: samples.
            autocast: whether mixed precision is torch.autocast's.
            tight: the least that the step runs in, the allocator releasing free segments, instead
                of what it takes when memory is plentiful.
            residence: what of the step is not on the device.
        """
        numerics = self.numerics(precision, autocast=autocast)
        key = (numerics, recompute, micro_batch, tight, residence)
        if key not in self._derived.reserved:

            def replayed() -> float:
                trace = self.trace_in(numerics, recompute, residence=residence)
                keeps = residence.keeps_gradients
                pool = replay(trace, micro_batch, keeps_gradients=keeps)
                allocated = max(1, pool.peak_allocated_bytes)
                usual = pool.peak_reserved_bytes / allocated
                return _least_ratio(trace, micro_batch, allocated, usual, keeps) if tight else usual

            found = self.values.value(("fragmentation", *key), replayed)
            self._derived.reserved[key] = cast(float, found)
        return self._derived.reserved[key]

    def shared(self, key: tuple[object, ...], make: Callable[[], Made]) -> Made:
        """Return what `make` returned for this key when it was first asked for."""
        known = self._derived.shared
        if key not in known:
            known[key] = make()
        return cast(Made, known[key])

    def hardware_flops(
        self, precision: Precision, recompute: Recompute, micro_batch: float
    ) -> float:
        """Return FLOPs of one micro-batch with the recomputed forward passes counted.

        What a fused attention kernel recomputes inside is not counted, as in Megatron's HFU.
        """
        key = (NUMERICS_OF_PRECISION[precision], recompute)
        if key not in self._derived.flops:
            trace = self.trace(precision, recompute)
            again = [trace.segments[i] for i in trace.schedule]
            kernels = [k for s in again if s.phase == "recompute" for k in s.kernels]
            self._derived.flops[key] = Affine(
                sum(k.flops.base for k in kernels), sum(k.flops.per_sample for k in kernels)
            )
        return self.profile.flops.at(micro_batch) + self._derived.flops[key].at(micro_batch)

    def moved_bytes(self, numerics: Numerics, recompute: Recompute, *, fused: bool) -> Affine:
        """Return the bytes that the kernels of both passes over one micro-batch read and write."""
        key = (numerics, recompute, fused)
        if key not in self._derived.moved:
            trace = self.trace_in(numerics, recompute)
            runs = running_segments(trace, fused)
            kernels = [kernel for i in trace.schedule for kernel in runs[i].kernels]
            moved = [amount for k in kernels for amount in (k.bytes_read, k.bytes_written)]
            self._derived.moved[key] = Affine(
                sum(one.base for one in moved), sum(one.per_sample for one in moved)
            )
        return self._derived.moved[key]


class _Derived:
    """What follows from a Profile, and its curves on each device; filled while it is asked for."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.traces: dict[tuple[Numerics, Recompute, bool, Residence], StepTrace] = {}
        self.envelopes: dict[tuple[Numerics, Recompute, tuple[int, ...], Residence], Envelope] = {}
        self.kernels: dict[tuple[object, ...], StepKernels] = {}
        self.curves: dict[tuple[str, CurveChoice], DeviceCurves] = {}
        self.product_dtypes: dict[Precision, frozenset[str]] = {}
        self.reserved: dict[tuple[Numerics, Recompute, int, bool, Residence], float] = {}
        self.flops: dict[tuple[Numerics, Recompute], Affine] = {}
        self.moved: dict[tuple[Numerics, Recompute, bool], Affine] = {}
        self.splits: dict[tuple[object, ...], SplitTrace] = {}
        self.rank_memories: dict[tuple[object, ...], RankMemory] = {}
        self.shared: dict[tuple[object, ...], object] = {}

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        return units_of(self.profile)

    @cached_property
    def profile_digest(self) -> str:
        return profile_digest(self.profile)

    @cached_property
    def flat_units(self) -> tuple[Unit, ...]:
        return tuple(replace(unit, tensors=()) for unit in self.units)

    @cached_property
    def kinds(self) -> frozenset[str]:
        trace = self.profile.step(self.profile.numerics()[0])
        kernels = [kernel for segment in trace.segments for kernel in segment.kernels]
        routed = {"experts"} if any(map(is_expert_product, kernels)) else set()
        return frozenset({kernel.kind for kernel in kernels} | routed)


def _least_ratio(
    trace: StepTrace, micro_batch: int, allocated: int, usual: float, keeps_gradients: bool
) -> float:
    """Return the smallest tried pool, relative to the allocated peak, that the step runs in."""
    for ratio in TIGHT_RATIOS:
        if ratio >= usual:
            break
        try:
            limit = ratio * allocated
            replay(trace, micro_batch, limit_bytes=limit, keeps_gradients=keeps_gradients)
        except PoolExhaustedError:
            continue
        return ratio
    return usual
