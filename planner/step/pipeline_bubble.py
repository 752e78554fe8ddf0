"""How long pipeline stages wait for each other in a step.

1F1B and GPipe take the same time: every stage works `grad_accum` times, and waits for the stages
before it once and for those behind it once, 1/virtual of it with interleaving (Narayanan et al.
2021, arXiv:2104.04473, section 2.2):

    step = accumulation · slowest stage + (sum of stages - slowest stage) / virtual
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def bubble_s(others_s: Array, virtual_stages: Array) -> Array:
    """Return seconds that the slowest stage waits in a step for the others, which take so long."""
    return others_s / virtual_stages
