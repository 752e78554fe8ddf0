"""How much a checkpoint holds: the weights and the optimizer's state, each once."""

from __future__ import annotations

from ...catalog.vocabulary import FrozenPrecision, Precision
from ...profiles.profile import CATEGORIES, NUMERICS_OF_PRECISION, Profile, StepTrace
from .frozen_base import quantised_bytes

WHOLE_BYTES = 4
USUAL_BYTES_PER_PARAMETER = 3 * WHOLE_BYTES
"""Of mixed precision with Adam: the 32-bit parameter and its two moments."""
_SAVED = (CATEGORIES.index("parameters"), CATEGORIES.index("optimizer"))


def usual_checkpoint_bytes(parameters: int) -> int:
    """Return the bytes of a checkpoint where no more than the parameters are known: as with Adam.

    >>> usual_checkpoint_bytes(10**9)
    12000000000
    """
    return USUAL_BYTES_PER_PARAMETER * parameters


def checkpoint_bytes(
    profile: Profile, precision: Precision, frozen: FrozenPrecision | None = None
) -> float:
    """Return the bytes of a checkpoint: every parameter, and the state of those that are trained.

    Frozen parameters are saved with the rest (`get_state_dict` without `ignore_frozen_params`,
    launcher/runner/checkpoint/contents.py), each tensor in the dtype that the run keeps it in:
    under mixed precision as the file builds it, 16-bit throughout where the run is.

    Args:
        profile: of the model.
        precision: of the run.
        frozen: how frozen parameters are kept; None as the precision says.

    Raises:
        KeyError: frozen parameters have a precision of their own that was not traced.
    """
    step, width = _kept_as(profile, precision, frozen)
    memory = step.memory
    kept = sum(
        size
        for size, category, birth in zip(
            memory.bytes_base, memory.category, memory.birth_tick, strict=True
        )
        if birth < 0 and category in _SAVED
    )
    return width * kept - (quantised_bytes(profile) if frozen == "nf4" else 0.0)


def _kept_as(
    profile: Profile, precision: Precision, frozen: FrozenPrecision | None
) -> tuple[StepTrace, float]:
    """Return a step that keeps its state as the run does, but for a factor."""
    if frozen is not None:
        return profile.step("frozen16"), 1.0
    is_half = NUMERICS_OF_PRECISION[precision] == "pure16"
    for step in profile.steps:
        if step.numerics != "frozen16" and (step.numerics == "pure16") == is_half:
            return step, 1.0
    return profile.steps[0], 0.5 if is_half else 2.0
