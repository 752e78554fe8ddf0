"""A measurement on one device, carried to others: the residual of every kernel kind.

residual(kind) = measured time / predicted time on the device that was measured. Elsewhere the
predicted time of that kind is multiplied by residual(kind) ** weight, and the weight says how much
of what one device shows is taken to hold for the other:

    the same accelerator 1 · same vendor and architecture 3/4 · same vendor 1/2 · another vendor 1/4

Part of a residual belongs to the model (kernels that a trace misses or counts twice) and goes
along; part belongs to the device and its library and stays behind. The weights are a rule, not a
fit: the open records hold no model that was measured by kernel kind on two devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ....catalog.errors import GpuplanError
from ....catalog.types import Accelerator
from ....catalog.vocabulary import PRECISIONS, Precision
from ....profiles.curves.choice import USUAL_CURVES, CurveChoice
from ....profiles.measured import MeasuredProfile, Measurement
from ....profiles.profile import KernelKind, Profile
from ...software.stack import facts_of
from ..kept.model_cache import ModelCache
from .residuals import Calibration

LEAST_SHARE = 0.02
"""A kind with less of the step than this, measured or predicted, says nothing reliable."""
LARGEST_RESIDUAL = 2.0
"""A residual above this, or below its inverse, is cut: then more is wrong than a rate."""
HARMLESS = frozenset({"power cap"})
"""Reasons for low clocks that are the normal state of a device under load."""


class CalibratedProfile(MeasuredProfile):
    """A measured Profile with what its measurement says of predictions elsewhere."""

    calibration: Calibration


def calibrated(
    profile: Profile,
    accelerator: Accelerator | None,
    *,
    curve_choice: CurveChoice = USUAL_CURVES,
) -> tuple[Profile, tuple[str, ...]]:
    """Return the Profile ready to predict other devices, and what the user should know about it.

    A Profile that was not measured, or whose measurement cannot calibrate, comes back as it is.

    Args:
        profile: Any Profile.
        accelerator: The device it was measured on, as the catalogue knows it; None if it does not.
        curve_choice: What the measured times are held against.
    """
    if not isinstance(profile, MeasuredProfile):
        return profile, ()
    measured = profile.measured
    reason = _useless(measured, accelerator)
    if reason is not None or accelerator is None:
        return profile, (f"the measurement calibrates no accelerator: {reason}",)
    try:
        cache = ModelCache(profile, curve_choice=curve_choice)
        predicted_s = _predicted_s(cache, measured, accelerator)
    except GpuplanError as error:
        return profile, (f"the measurement calibrates no accelerator: {error.message}",)
    found = residuals({one.kind: one.seconds for one in measured.kernels}, predicted_s)
    if not found:
        return profile, ("the measurement calibrates no accelerator: no kernel kind was told",)
    calibration = Calibration(
        accelerator=accelerator.name,
        vendor=accelerator.vendor,
        arch=accelerator.arch,
        residuals=found,
    )
    told = ", ".join(f"{kind} x{value:.2f}" for kind, value in found.items())
    note = f"calibrated by real steps on {accelerator.name} (measured / predicted: {told})"
    return CalibratedProfile(**dict(profile), calibration=calibration), (note,)


def residuals(
    measured_s: Mapping[KernelKind, float], predicted_s: Mapping[KernelKind, float]
) -> dict[KernelKind, float]:
    """Return measured / predicted time of the kinds that matter, cut to what a rate may explain.

    >>> residuals({"gemm": 1.2, "norm": 0.001}, {"gemm": 1.0, "norm": 0.5})
    {'gemm': 1.2}
    """
    whole_s = sum(measured_s.values()), sum(predicted_s.values())
    found: dict[KernelKind, float] = {}
    for kind, seconds in measured_s.items():
        pair = seconds, predicted_s.get(kind, 0.0)
        if all(part > LEAST_SHARE * whole for part, whole in zip(pair, whole_s, strict=True)):
            ratio = pair[0] / pair[1]
            found[kind] = min(LARGEST_RESIDUAL, max(1 / LARGEST_RESIDUAL, ratio))
    return found


def _useless(measured: Measurement, accelerator: Accelerator | None) -> str | None:
    """Return why a measurement says nothing of accelerators; None if it does."""
    if measured.device.kind == "cpu":
        return f"it was made on a processor ({measured.device.name})"
    if accelerator is None:
        return f"{measured.device.name} is not in the catalogue"
    throttled = [one for one in measured.conditions.throttled or () if one not in HARMLESS]
    disturbed = [*throttled, *(measured.conditions.contention or ())]
    return f"it was disturbed ({'; '.join(disturbed)})" if disturbed else None


def _predicted_s(
    cache: ModelCache, measured: Measurement, accelerator: Accelerator
) -> dict[KernelKind, float]:
    named: dict[str, Precision] = {precision: precision for precision in PRECISIONS}
    stack = "torch-compile" if cache.profile.file_compiles else "torch-eager"
    return cache.kind_seconds(
        accelerator,
        named[measured.precision],
        measured.recompute,
        stack=replace(facts_of(stack, cache.constants), compiles_whole=cache.profile.file_compiles),
        micro_batches=np.array([measured.micro_batch]),
    )
