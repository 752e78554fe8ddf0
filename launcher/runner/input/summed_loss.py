"""Whether a loss is a sum over the samples of its batch, where a step takes a mean of losses.

A step averages the losses of its micro-batches and ranks. For means over samples that is the mean
over all of its samples, however they are dealt; sums grow with the micro-batch that a plan has, and
with them the gradients. A batch that holds each of its samples twice, or three times, tells: a mean
stays as it was, and a sum grows by the same each time. The model is in evaluation mode for it,
without dropout; a loss that draws numbers, and one that compares samples, tells nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from ....profiles.user_model.checks import Batch
from ....profiles.user_model.placing import placed
from ....profiles.user_model.workload import Workload
from ..job import Execution

SAMPLES = 2
COPIES = (1, 2, 3)
LEAST_GROWTH = 0.05
"""Of the loss, for each copy of the batch: what grows less is mostly a mean."""
TOLERANCE = 0.01
"""Within which the growths of two copies are alike; 32-bit sums are far nearer."""
MOST_PARAMETERS = 100e6
"""Larger models take minutes on a processor for these samples, and that is where they are here."""


def summed_loss_words(execution: Execution, own: int | None) -> str:
    """Return what becomes of a loss that is a sum over its samples, in words.

    Args:
        execution: how it is run.
        own: the file's own micro-batch; None where it has none.
    """
    dealt = execution.layout.data * execution.grad_accum
    size = execution.micro_batch
    words = "compute_loss() gives a sum over the samples of its batch, not their mean"
    if dealt > 1:
        words += f": a step takes the mean of {dealt:,} such sums, over {size:,} samples each"
    else:
        words += f": over {size:,} samples here"
    if own is not None and own != size:
        words += f", where the file's own micro-batch is {own:,}"
    return f"{words}. Another micro-batch trains otherwise; return the mean"


def sums_samples(workload: Workload, model: nn.Module) -> bool:
    """Return whether the loss grows as its samples are repeated; False where it is not known.

    Args:
        workload: the model file.
        model: whole, with its weights; comes back as it was.
    """
    parameters = list(model.parameters())
    count = sum(one.numel() for one in parameters)
    if any(one.is_meta for one in model.state_dict().values()) or count > MOST_PARAMETERS:
        return False
    kept = torch.get_rng_state()
    try:
        with torch.no_grad(), _evaluated(model):
            return _grows(workload, model, parameters[0].device)
    except Exception:  # noqa: BLE001 - the user's code, which may do otherwise in evaluation mode
        return False
    finally:
        torch.set_rng_state(kept)


def _grows(workload: Workload, model: nn.Module, device: torch.device) -> bool:
    torch.manual_seed(0)
    small, large = (workload.make_batch(size) for size in (SAMPLES, 2 * SAMPLES))

    def loss(copies: int, seed: int = 1) -> float:
        torch.manual_seed(seed)
        batch = placed(_repeated(small, large, copies), device)
        return float(workload.compute_loss(model, batch).double())

    once, twice, thrice = (loss(copies) for copies in COPIES)
    growth = twice - once
    if not math.isfinite(growth) or abs(growth) <= LEAST_GROWTH * abs(once):
        return False
    if abs(thrice - twice - growth) > TOLERANCE * abs(growth):
        return False
    return abs(loss(1, seed=2) - once) <= TOLERANCE * LEAST_GROWTH * abs(once)


def _repeated(small: Batch, large: Batch, copies: int) -> Batch:
    """Return a batch with all its samples so many times, along what a batch twice as large grows.

    Raises:
        ValueError: it is not known along what.
    """
    leaves, form = tree_flatten(small)
    others, form_of_larger = tree_flatten(large)
    if form != form_of_larger:
        raise ValueError("batches of two sizes are of two forms")
    pairs = zip(leaves, others, strict=True)
    return tree_unflatten([_leaf(one, other, copies) for one, other in pairs], form)


def _leaf(small: object, large: object, copies: int) -> object:
    if not (isinstance(small, Tensor) and isinstance(large, Tensor)):
        if small is None or (isinstance(small, bool | int | float | str) and small == large):
            return small
        raise ValueError("a batch holds what cannot be repeated")
    sizes = list(zip(small.shape, large.shape, strict=True))
    grown = [place for place, (one, other) in enumerate(sizes) if one != other]
    if not grown:
        return small
    if len(grown) > 1 or 2 * small.shape[grown[0]] != large.shape[grown[0]]:
        raise ValueError("a batch does not grow as its samples do")
    if grown[0] and not small.is_floating_point():
        raise ValueError("places of other samples, such as edges of a graph, cannot be repeated")
    return torch.cat([small] * copies, dim=grown[0])


@contextmanager
def _evaluated(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode, and afterwards its modes and its buffers back."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(one, one.clone()) for one in model.buffers()]
    model.eval()
    try:
        yield
    finally:
        for module, was in modes:
            module.training = was
        for buffer, before in buffers:
            buffer.copy_(before)
