"""What a measurement on one device says of predictions: a residual of every kernel kind.

`calibration.py` finds the residuals and says what the weights rest on.
"""

from __future__ import annotations

from ....catalog.frozen import FrozenModel
from ....catalog.types import Accelerator
from ....profiles.profile import KernelKind

SAME_DEVICE, SAME_ARCHITECTURE, SAME_VENDOR, OTHER_VENDOR = 1.0, 0.75, 0.5, 0.25


class Calibration(FrozenModel):
    """What a measurement on one device says of predictions."""

    accelerator: str
    vendor: str
    arch: str
    residuals: dict[KernelKind, float]

    def weight(self, accelerator: Accelerator) -> float:
        """Return how much of a residual holds on another device, between 0 and 1."""
        if accelerator.name == self.accelerator:
            return SAME_DEVICE
        if accelerator.vendor != self.vendor:
            return OTHER_VENDOR
        return SAME_ARCHITECTURE if accelerator.arch == self.arch else SAME_VENDOR

    def factors(self, accelerator: Accelerator) -> dict[KernelKind, float]:
        """Return what the predicted time of each kernel kind is multiplied by on a device."""
        weight = self.weight(accelerator)
        return {kind: residual**weight for kind, residual in self.residuals.items()}
