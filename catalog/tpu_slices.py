"""How many TPU chips one slice joins: a torus over hosts, as fast between them as within.

Several hosts of a TPU are rented as one slice. Only chips of different slices talk over the data
centre's network.
"""

from __future__ import annotations

from decimal import Decimal

LARGEST_SLICE_CHIPS = {
    # https://cloud.google.com/tpu/docs/system-architecture-tpu-vm and the page of each version
    # there (2025-11); of a v5p pod's 8,960 chips a job takes up to 6,144.
    "TPU-v2": 256,
    "TPU-v3": 1024,
    "TPU-v4": 4096,
    "TPU-v5e": 256,
    "TPU-v5p": 6144,
    "TPU-v6e": 256,
    "TPU-v7": 9216,
}
_HOST_CHIPS = 4
"""Of every host in a slice of several: those of one and of eight chips stand alone."""
_STANDING_ALONE = frozenset({"ct3-hightpu-4t"})
"""Slices of v3 are of `ct3p-hightpu-4t` in Kubernetes Engine."""
_NO_SLICES = {"TPU-v2": frozenset({8, 32}), "TPU-v3": frozenset({8})}
"""Chips of which there is no slice: after v2-8 comes v2-32, then v2-128 (Cloud TPU's list of types,
recalled)."""


def slice_chips(instance_type: str, accelerator: str, accelerators: Decimal | int) -> int | None:
    """Return how many chips hosts of this type form a slice of at most; None where none do.

    Slices are planned with powers of two of them, of which several then are alike.

    >>> slice_chips("ct5p-hightpu-4t", "TPU-v5p", 4)
    4096
    >>> slice_chips("ct6e-standard-8t", "TPU-v6e", 8) is None
    True
    """
    if accelerators != _HOST_CHIPS or instance_type in _STANDING_ALONE:
        return None
    largest = LARGEST_SLICE_CHIPS.get(accelerator)
    return None if largest is None else 1 << (largest.bit_length() - 1)


def has_slice(accelerator: str, chips: int) -> bool:
    """Return whether a slice of so many chips can be asked for: powers of two.

    Long tori (v4, v5p, v7) have a few sizes more, which no plan tries unless it is told to.
    """
    return chips & (chips - 1) == 0 and chips not in _NO_SLICES.get(accelerator, ())
