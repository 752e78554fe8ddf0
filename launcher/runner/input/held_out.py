"""Whether a run is evaluated on the samples that it trains on.

`build_dataset()` and `build_eval_dataset()` draw from the same seed, so that a file which splits
its samples at random in both (`random_split`) keeps them apart. A file that draws the samples
themselves in both makes the same ones twice, which nothing but the samples shows.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from .samples import Place, Seeded

COMPARED = 8


def same_samples_words(trained: Seeded, evaluated: Seeded) -> str | None:
    """Return that both data sets begin with the same samples, in words; None where they do not."""
    count = min(COMPARED, len(trained.of_user), len(evaluated.of_user))
    kept = random.getstate()
    with torch.random.fork_rng(devices=()), suppress(Exception):  # The run itself names a fault.
        some, others = (
            _columns([one[Place(0, place)] for place in range(count)])
            for one in (trained, evaluated)
        )
        if any(map(_is_same, some, others)):
            return (
                f"the first {count} samples of build_eval_dataset() are those of build_dataset():"
                " the evaluation is on what was trained on. Both draw from the run's seed; draw"
                " samples of your own from torch.Generator().manual_seed(…), another in each"
            )
    random.setstate(kept)
    return None


def _columns(samples: list[Any]) -> list[list[Tensor]]:
    """Return the tensors that stand in the same place of every sample, place by place."""
    values = [[leaf for leaf in tree_leaves(one) if _is_value(leaf)] for one in samples]
    rows = [[torch.as_tensor(leaf) for leaf in leaves] for leaves in values]
    return [list(column) for column in zip(*rows, strict=True)]


def _is_value(leaf: Any) -> bool:
    return isinstance(leaf, Tensor | float) or hasattr(leaf, "__array__")


def _is_same(some: list[Tensor], others: list[Tensor]) -> bool:
    """Return whether samples are equal, in what tells one sample from another.

    Labels are equal by chance, and masks and positions in all samples.
    """
    first = some[0]
    if first.numel() < 2 and not first.is_floating_point():
        return False
    differ = any(not torch.equal(first, one) for one in some[1:])
    return differ and all(map(torch.equal, some, others))
