"""How much of a data set a run is, in words. Standard library only."""

from __future__ import annotations


def amount_words(steps: int, global_batch: int, samples: int | None) -> str:
    """Return how much of a data set so many steps are.

    >>> amount_words(100, 8, 50)
    '100 steps of 8 are 800 samples, 16.7 epochs of 50'

    Args:
        steps: of the run.
        global_batch: samples of one step.
        samples: of the data set; None where that is not known.
    """
    words = f"{steps:,} steps of {global_batch:,} are {steps * global_batch:,} samples"
    if not samples or samples < global_batch:
        return words
    # The last samples of an epoch that fill no global batch are left out.
    return f"{words}, {steps / (samples // global_batch):.3g} epochs of {samples:,}"
