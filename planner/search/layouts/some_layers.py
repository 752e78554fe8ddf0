"""Recompute of some of the layers, where keeping the activations of all is a little too much.

Between none of the layers recomputed and all of them lie memory and time on a straight line (for
memory, see `memory_parts`). So where "none" does not fit and "full" does, the fewest layers that
must be recomputed follow from the two peaks and the room, and nothing else is tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....catalog.errors import UsageError
from ....catalog.vocabulary import Recompute
from ....profiles.profile import Profile
from ...plan.question import Choices
from ...plan.setup import Setup

Array = np.ndarray

FRAGMENTATION = 1.1
"""Reserved ÷ allocated assumed while searching. Recompute leaves more of the pool unused than other
steps do, and here the pool is filled to the brim: replays of the decoder example, with 24 layers of
2,048 and as it is, 1 to 8 samples, give 1.02 to 1.1 without recompute and 1.06 to 1.4 with it."""
FURTHER = 1 / 8
"""Part of the layers that are recomputed besides, where the allocator takes more than assumed: a
judgement, for at most eight replays follow."""


def equal_layers(profile: Profile) -> int:
    """Return how many layers a model has, were they all equal; else 0.

    >>> from ....profiles.profile import Profile
    >>> equal_layers(Profile.model_construct(blocks=()))
    0
    """
    return profile.blocks[0].count if len(profile.blocks) == 1 else 0


def asked_share(choices: Choices, profile: Profile) -> float:
    """Return the part of the layers that was asked for.

    Raises:
        UsageError: the model has fewer equal layers.
    """
    if choices.recompute_layers is None:
        return 1.0
    layers = equal_layers(profile)
    if choices.recompute_layers >= layers:
        held = f"{layers} equal layers" if layers else "no run of equal layers"
        raise UsageError(
            f"Recompute of {choices.recompute_layers} layers is asked for; the model has {held}.",
            fix="give --recompute full" + (f", or full:1 to full:{layers - 1}." if layers else "."),
        )
    return choices.recompute_layers / layers


def recomputed_layers(setup: Setup, profile: Profile) -> int | None:
    """Return how many layers a setup recomputes; None where it is all or none of them."""
    if setup.recompute_share == 1.0:
        return None
    return round(setup.recompute_share * equal_layers(profile))


def ends_of(recomputes: Sequence[Recompute], profile: Profile) -> tuple[int, int] | None:
    """Return where "none" and "full" are among the policies; None where not between them.

    A user who names one policy gets that one alone, and layers that differ have no straight line.
    """
    if "none" not in recomputes or "full" not in recomputes or equal_layers(profile) < 2:
        return None
    return recomputes.index("none"), recomputes.index("full")


def further_share(share: float, layers: int) -> float:
    """Return a larger part of the layers of a stage: an eighth more of them, and whole ones.

    >>> further_share(0.5, 32)
    0.625
    """
    return min(1.0, math.ceil((share + FURTHER) * layers - 1e-9) / layers)


def least_share(
    kept_bytes: Array, recomputed_bytes: Array, room_bytes: Array | float, *, layers: Array | int
) -> Array:
    """Return the least part of the layers to recompute, so that the peak is within the room.

    Args:
        kept_bytes: peak where no layer is recomputed.
        recomputed_bytes: peak where every layer is.
        room_bytes: what the allocator may take.
        layers: of a stage, which recomputes whole layers.

    Returns:
        Elementwise, a multiple of 1 / layers between 0 and 1; 0 where "none" fits as well, 1 where
        nothing less than "full" does, NaN where that does not fit either.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (kept_bytes - room_bytes) / (kept_bytes - recomputed_bytes)
    whole = np.ceil(np.clip(share, 0.0, 1.0) * layers - 1e-9) / layers
    found = np.where(kept_bytes <= room_bytes, 0.0, whole)
    return np.where(np.minimum(kept_bytes, recomputed_bytes) <= room_bytes, found, np.nan)
