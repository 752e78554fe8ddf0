"""How much a checkpoint holds: the weights and the optimizer's state, each once."""

from __future__ import annotations

from ...catalog.vocabulary import Precision
from ...profiles.profile import CATEGORIES, NUMERICS_OF_PRECISION, OptimizerFacts, Profile

WHOLE_BYTES, HALF_BYTES = 4, 2
USUAL_BYTES_PER_PARAMETER = 3 * WHOLE_BYTES
"""Of mixed precision with Adam: the 32-bit parameter and its two moments."""


def usual_checkpoint_bytes(parameters: int) -> int:
    """Return the bytes of a checkpoint where no more than the parameters are known: as with Adam.

    >>> usual_checkpoint_bytes(10**9)
    12000000000
    """
    return USUAL_BYTES_PER_PARAMETER * parameters


def checkpoint_bytes(profile: Profile, precision: Precision) -> float:
    """Return the bytes of a checkpoint: every parameter, and the state of those that are trained.

    Mixed precision saves its 32-bit parameters; a run that is 16-bit throughout saves those.
    """
    is_half = NUMERICS_OF_PRECISION[precision] == "pure16"
    width = HALF_BYTES if is_half else WHOLE_BYTES
    state = profile.trained_parameters * optimizer_state_bytes(profile, width)
    return profile.parameters * width + state


def optimizer_state_bytes(profile: Profile, width: int) -> float:
    """Return bytes of optimizer state per trained parameter where a parameter has this width."""
    facts: OptimizerFacts = profile.optimizer
    if facts.name.endswith("8bit"):
        return facts.state_bytes_per_parameter
    memory = profile.steps[0].memory
    gradients = sum(
        size
        for size, category in zip(memory.bytes_base, memory.category, strict=True)
        if category == CATEGORIES.index("gradients")
    )
    traced = gradients / max(1, profile.trained_parameters) or width
    return facts.state_bytes_per_parameter * width / traced
