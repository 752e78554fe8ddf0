"""The error for plans that this version cannot predict."""

from ...catalog.errors import NoFeasiblePlanError


class UnsupportedError(NoFeasiblePlanError):
    """The plan asks for something that this version cannot predict, or the device cannot do."""
