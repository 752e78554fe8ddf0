"""Models whose loss compares the samples of a micro-batch with each other, as CLIP's does.

The micro-batch is then part of what is trained: every sample is compared with those beside it on
its device, and neither accumulation nor more devices add any. A batch norm looks at its micro-batch
too, but nobody trains it otherwise, so that it counts as no such model.
"""

from __future__ import annotations

from ...profiles.profile import Profile
from ..plan.question import Choices
from .batch_rule import measures_distances


def kept_micro_batch(profile: Profile, choices: Choices, global_batch: int | None) -> int | None:
    """Return the only micro-batch to try, the file's own; None where others may be tried too.

    Args:
        profile: the model.
        choices: a micro-batch that was asked for goes first.
        global_batch: given in the question; the file's micro-batch has to divide it.
    """
    if not _compares(profile) or choices.micro_batches:
        return None
    own = profile.default_micro_batch
    if own is None:
        return None
    return own if global_batch is None or global_batch % own == 0 else None


def across_samples_warnings(
    profile: Profile, choices: Choices, global_batch: int | None
) -> list[str]:
    """Return what becomes of the micro-batch of a model whose loss looks across it.

    Nothing for other models, and where one micro-batch was asked for.
    """
    if not _compares(profile) or len(choices.micro_batches) == 1:
        return []
    kept = kept_micro_batch(profile, choices, global_batch)
    if kept is not None:
        return [
            f"all plans keep the file's {kept:,} samples on each device, since another micro-batch"
            " has another objective; --micro-batch N chooses another"
        ]
    return [
        "plans with another micro-batch (mb in the column layout) train another objective and are"
        " not alike; fix it with --micro-batch N"
    ]


def _compares(profile: Profile) -> bool:
    """Return whether the loss is made of pairs of samples: of their products, or of distances."""
    return profile.mixes_samples or measures_distances(profile)
