"""The answer of `gpuplan calibrate --from-store`."""

from __future__ import annotations

from typing import Literal

from ...catalog.frozen import FrozenModel


class OwnRun(FrozenModel):
    """One configuration that was measured; errors are predicted ÷ measured − 1."""

    runs: tuple[str, ...]
    """Ids of the runs of this model with its params in this plan."""
    plan_key: str
    """The machines and the layout."""
    model: str
    """Name of its file."""
    measured_s: float
    """Median of their step times, seconds."""
    before_s: float
    """Predicted with the curves that are used today, seconds."""
    after_s: float | None
    """Predicted with the new ones, seconds; None where none were written."""
    error_before: float
    error_after: float | None


class LeftOutRun(FrozenModel):
    """A measured run that does not count."""

    run: str
    why: str


class OwnCalibration(FrozenModel):
    """What one device's own runs say of its curves."""

    accelerator: str
    runs: int
    """That count."""
    configurations: tuple[OwnRun, ...]
    factor: float | None
    """By which all kernel times are multiplied; None where there are too few runs."""
    mape_before: float | None
    """Mean of |predicted ÷ measured − 1| with the curves of today."""
    mape_after: float | None
    """The same with the new curves."""
    mape_held_out: float | None
    """The same, each configuration with a factor that was fitted to the others."""
    path: str | None
    """The curve file that was written; None: nothing was."""
    kept_as: str | None
    """Where the file is that was there before; None where there was none."""
    why_not: str | None
    """Why nothing was written."""


class StoreCalibration(FrozenModel):
    """The whole answer of `gpuplan calibrate --from-store`."""

    schema_version: Literal["1.0"] = "1.0"
    accelerators: tuple[OwnCalibration, ...]
    left_out: tuple[LeftOutRun, ...]
