"""Whether micro-batches hold other numbers of tokens, and count the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ....profiles.user_model.workload import Workload, optional_function
from ..job import Execution

IGNORED = -100
"""The label that torch's and Hugging Face's losses leave out."""


def padding_words(workload: Workload, execution: Execution, batches: Sequence[Any]) -> str | None:
    """Return that padding changes what a token counts for, in words; None where it does not.

    Args:
        workload: the model file.
        execution: how many micro-batches make a step.
        batches: this process's micro-batches of a step.
    """
    micro_batches = execution.layout.data * execution.grad_accum
    if micro_batches == 1 or optional_function(workload, "loss_weight") is not None:
        return None
    leaves = [[one for one in tree_leaves(batch) if _are_labels(one)] for batch in batches]
    if not any(map(_are_padded, zip(*leaves, strict=False))):
        return None
    return (
        f"warning: samples have other numbers of labels that are not {IGNORED}, and the"
        f" {micro_batches:,} micro-batches of a step count the same: where the loss is a mean of"
        " tokens, those of short samples weigh more. loss_weight(batch) in the file says how many"
        " tokens each has (docs/model-file.md)"
    )


def _are_labels(leaf: Any) -> bool:
    is_whole = isinstance(leaf, Tensor) and not leaf.is_floating_point()
    return is_whole and leaf.dtype != torch.bool and leaf.dim() > 1


def _are_padded(labels: Sequence[Tensor]) -> bool:
    """Return whether samples have other numbers of labels, in any of the micro-batches."""
    kept = torch.cat([(one != IGNORED).flatten(1).sum(1) for one in labels])
    has_ignored = any(bool((one == IGNORED).any()) for one in labels)
    return has_ignored and bool((kept != kept[0]).any())
