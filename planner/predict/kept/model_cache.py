"""What predictions of one Profile share: its steps, curves, kernel times, small kept values."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TypeVar, cast

import numpy as np

from ....catalog.types import Accelerator
from ....catalog.vocabulary import FrozenPrecision, Precision, Recompute
from ....profiles.curves.choice import USUAL_CURVES, CurveChoice
from ....profiles.curves.device_curves import DeviceCurves, curves_for
from ....profiles.passes.loss_kernel import with_loss_kernel
from ....profiles.passes.residence import ON_DEVICE, Residence
from ....profiles.profile import (
    NUMERICS_OF_PRECISION,
    KernelKind,
    Numerics,
    Profile,
)
from ...constants import Constants
from ...hardware.cluster import Site
from ...hardware.collectives import Links
from ...parallelism.fsdp import Unit
from ...parallelism.rank_trace import Split
from ...software.frozen_base import with_frozen_base
from ...software.stack import StackFacts
from ...step.kernels.kernel_totals import SegmentTimes, StepKernels
from ..measured.residuals import Calibration
from .kept_steps import KeptSteps, running_numerics
from .kept_tables import KeptTables
from .kept_values import KeptValues
from .reserved_ratio import ReplayWays, reserved_ratio

Array = np.ndarray
Made = TypeVar("Made")
_FROZEN = ("what follows from a frozen base",)


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
        self._derived = _Derived(profile, kept)
        self.values = KeptValues(kept, self._facts)
        """Small results that follow from the Profile and the constants alone."""
        self._beside: ModelCache | None = None
        """The cache with a frozen base (`with_frozen`)."""
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
            self._beside.values.save()
        # Copies with other constants share what is derived, that of a frozen base too.
        frozen = cast(_Derived | None, self._derived.shared.get(_FROZEN))
        for derived in filter(None, (self._derived, frozen)):
            derived.replays.save()

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
            raise self.steps.untraced("frozen16")
        other = copy(self)
        other._has_frozen_base = True
        other.profile = self.shared(("frozen base",), lambda: with_frozen_base(self.profile))
        other._derived = self.shared(_FROZEN, lambda: _Derived(other.profile, other.kept))
        other.values = self.shared(
            ("kept values of it", id(self.constants)),
            lambda: KeptValues(other.kept, other._facts),
        )
        self._beside = other
        return other

    def of(self, profile: Profile) -> ModelCache:
        """Return a cache of another Profile that predicts with the same constants and curves."""
        return ModelCache(profile, constants=self.constants, curve_choice=self.curve_choice)

    @property
    def steps(self) -> KeptSteps:
        """The forms of its step, each made once."""
        return self._derived.steps

    @property
    def units(self) -> tuple[Unit, ...]:
        """FSDP units of the model."""
        return self.steps.units

    @property
    def profile_digest(self) -> str:
        """What is equal for equal Profiles (`kept_tables.profile_digest`)."""
        return self.steps.profile_digest

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of kernels in the step, and "experts" where some are products of experts."""
        return self.steps.kinds

    @property
    def new_kernel_share(self) -> float:
        """Which part of the step is in kernels that hardly any published run has."""
        return self.steps.new_kernel_share

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

    def numerics(self, precision: Precision, *, autocast: bool) -> Numerics:
        """Return the trace that runs (`running_numerics`)."""
        return running_numerics(precision, autocast=autocast)

    def holds(self, precision: Precision, *, autocast: bool) -> bool:
        """Return whether the Profile has the trace that runs (`numerics`).

        A step that runs in 16-bit layers only where FSDP casts what enters the model is not one of
        weights that are in 16 bits everywhere.
        """
        if NUMERICS_OF_PRECISION[precision] == "pure16" and self.steps.needs_fsdp_casts:
            return False
        return self.numerics(precision, autocast=autocast) in self._derived.numerics

    def multiplies_on(self, accelerator: Accelerator, precision: Precision) -> bool:
        """Return whether a device has a rate for every dtype that the step multiplies in.

        A step in 16 bits may hold products in fp32: of parts that the model keeps out of autocast.
        Which of its traces runs depends on the layout, so a device needs the rates of all of them.
        """
        others = self.steps.product_dtypes(precision) - accelerator.peak_flops.keys()
        return all(self.curves(accelerator).multiplies(dtype) for dtype in others)

    def fuses_loss(self, stack: StackFacts) -> bool:
        """Return whether the loss runs in one kernel a pass (`loss_kernel.py`)."""
        sees_loss = stack.compiles_whole and self.profile.loss_in_model
        return stack.fuses and (stack.fuses_loss or sees_loss)

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
        fuses_loss = self.fuses_loss(stack)
        key = (numerics, recomputes, stack.fuses, fuses_loss, early_stop, sizes, split)
        if key not in self._derived.kernels:
            traces = [
                self.steps.trace_in(numerics, recompute, early_stop=early_stop)
                if split is None
                else self.steps.split_in(numerics, recompute, split, early_stop=early_stop).trace
                for recompute in recomputes
            ]
            if fuses_loss:
                traces = [with_loss_kernel(trace) for trace in traces]
            fused = [
                self.steps.outliving(
                    numerics, recompute, early_stop=early_stop, fuses_loss=fuses_loss
                )
                for recompute in recomputes
                if stack.fuses
            ]
            self._derived.kernels[key] = StepKernels(traces, micro_batches, fused=fused)
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
        numerics, fuses_loss = NUMERICS_OF_PRECISION[precision], self.fuses_loss(stack)
        trace = self.steps.trace(precision, recompute)
        fused = (
            [self.steps.outliving(numerics, recompute, fuses_loss=fuses_loss)]
            if stack.fuses
            else None
        )
        step = with_loss_kernel(trace) if fuses_loss else trace
        kernels = StepKernels([step], micro_batches, fused=fused)
        return kernels.kind_seconds(self.curves(accelerator), precision=precision, stack=stack)

    def fragmentation(
        self,
        precision: Precision,
        recompute: Recompute,
        micro_batch: int,
        *,
        autocast: bool = True,
        tight: bool = False,
        residence: Residence = ON_DEVICE,
        workspace_bytes: int = 0,
    ) -> float:
        """Return reserved ÷ allocated peak of the step on one device, by replaying the pool.

        The workspaces of libraries are in neither, though where they lie counts.

        Args:
            precision: with `autocast`, decides which trace runs.
            recompute: policy.
            micro_batch: samples.
            autocast: whether mixed precision is torch.autocast's.
            tight: the least that the step runs in, the allocator releasing free segments, instead
                of what it takes when memory is plentiful.
            residence: what of the step is not on the device.
            workspace_bytes: of each thread that multiplies, in the pool.
        """
        numerics = self.numerics(precision, autocast=autocast)
        key = (numerics, recompute, micro_batch, tight, residence, workspace_bytes)
        if key not in self._derived.reserved:

            def replayed() -> float:
                trace = self.steps.trace_in(numerics, recompute, residence=residence)
                ways: ReplayWays = {
                    "keeps_gradients": residence.keeps_gradients,
                    "built_in_fp32": residence.built_in_fp32,
                    "workspace_bytes": workspace_bytes,
                }
                return reserved_ratio(trace, micro_batch, ways, tight=tight)

            found = self._derived.replays.value(key, replayed)
            self._derived.reserved[key] = cast(float, found)
        return self._derived.reserved[key]

    def shared(self, key: tuple[object, ...], make: Callable[[], Made]) -> Made:
        """Return what `make` returned for this key when it was first asked for."""
        known = self._derived.shared
        if key not in known:
            known[key] = make()
        return cast(Made, known[key])


class _Derived:
    """What follows from a Profile and its curves on each device; filled while it is asked for."""

    def __init__(self, profile: Profile, kept: KeptTables | None) -> None:
        self.steps = KeptSteps(profile)
        self.replays = KeptValues(kept, self._facts)
        """Results of replays, which no constant and no curve changes."""
        self.numerics = frozenset(profile.numerics())
        self.kernels: dict[tuple[object, ...], StepKernels] = {}
        self.curves: dict[tuple[str, CurveChoice], DeviceCurves] = {}
        self.reserved: dict[tuple[Numerics, Recompute, int, bool, Residence, int], float] = {}
        self.shared: dict[tuple[object, ...], object] = {}

    def _facts(self) -> dict[str, object]:
        return {"what": "replays of a model", "profile": self.steps.profile_digest}
