"""How sure a prediction is: the 80 % interval of a step time and of a peak.

Errors of a step are close to log-normal (open records: residual sd 0.05-0.08 within a source), so
the interval is multiplicative. Its width adds, in quadrature, the error of the form of the model,
of the device's curves (measured or borrowed from a relative) and of the network.
"""

from __future__ import annotations

import math

from .plan import Basis, Estimated, EstimatedMemory

Z_80 = 1.2816
"""Half-width of a central 80 % interval of a normal distribution, in standard deviations."""
FORM_SIGMA = 0.09
"""Relative error of the model's form on dense rows it was not fitted to (docs/accuracy.md)."""
NETWORK_SIGMA = 0.30
"""Relative error of exposed communication over a network (docs/accuracy.md)."""
MEMORY_SIGMA = 0.03
"""Relative error of allocator peaks; libraries' workspaces vary by version."""
FRAMEWORK_SIGMA = 0.30
"""Relative error of context and communicator memory (sources give ranges of that width)."""


def step_interval(
    value_s: float,
    *,
    compute_s: float,
    compute_sigma: float,
    memory_bound_s: float,
    memory_bound_sigma: float,
    communication_s: float,
    calibration: float | None = None,
) -> Estimated:
    """Return the step time with its 80 % interval.

    Args:
        value_s: predicted step time.
        compute_s: its matmul-like part, and
        compute_sigma: the relative error of those curves.
        memory_bound_s: its memory-bound part, and
        memory_bound_sigma: the relative error of those.
        communication_s: its exposed communication.
        calibration: how much of a measurement elsewhere holds here, between 0 and 1; None without
            one. Where all of it holds, half of the form's error is gone.
    """
    basis: Basis = "analytic" if calibration is None else "calibrated"
    if value_s <= 0:
        return Estimated(value=value_s, low=value_s, high=value_s, basis=basis)
    parts = (
        FORM_SIGMA * (1 - (calibration or 0.0) / 2),
        compute_sigma * compute_s / value_s,
        memory_bound_sigma * memory_bound_s / value_s,
        NETWORK_SIGMA * communication_s / value_s,
    )
    spread = math.exp(Z_80 * math.sqrt(sum(part**2 for part in parts)))
    return Estimated(value=value_s, low=value_s / spread, high=value_s * spread, basis=basis)


def memory_interval(
    allocator_bytes: float, framework_bytes: float, *, capacity_bytes: float
) -> EstimatedMemory:
    """Return what the device must hold with its 80 % interval."""
    half = Z_80 * math.hypot(MEMORY_SIGMA * allocator_bytes, FRAMEWORK_SIGMA * framework_bytes)
    value = allocator_bytes + framework_bytes
    return EstimatedMemory(
        value=value, low=value - half, high=value + half, basis="analytic", capacity=capacity_bytes
    )
