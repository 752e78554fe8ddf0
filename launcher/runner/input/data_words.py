"""What a run trains on, in words, and what of it is refused."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ....catalog.errors import UsageError
from ....profiles.user_model.workload import Workload
from .batches import SYNTHETIC_BATCHES
from .samples import seed_everything

PROBED_SAMPLES = 2


def data_words(workload: Workload, *, synthetic: bool) -> str:
    """Return what a run trains on, in words for the user."""
    if synthetic:
        return "synthetic batches: --synthetic"
    if workload.build_dataset is None:
        return f"synthetic batches: {_named(workload)} has no build_dataset()"
    if workload.loader is not None:
        return f"{workload.loader} of {_named(workload)}, in gpuplan's own loop"
    return f"build_dataset() of {_named(workload)}"


def refuse_no_data(workload: Workload, *, synthetic: bool, needs_dataset: bool) -> None:
    """Refuse batches that nobody would want to train on, and what would be left out in silence.

    Raises:
        UsageError: there is no data set, or a Trainer would run more than gpuplan's runner does.
    """
    if workload.not_run:
        names = ", ".join(workload.not_run)
        raise UsageError(
            f"{_named(workload)} has what a Trainer of Lightning runs and gpuplan's runner does"
            f" not: {names}.",
            fix="train it with its own Trainer: --command with the script that calls fit(), and"
            " --framework lightning; or leave these out.",
        )
    if synthetic or workload.build_dataset is not None:
        return
    if needs_dataset:
        raise UsageError(
            f"{_named(workload)} has no build_dataset(), and synthetic batches were not asked for.",
            fix="write build_dataset() (docs/model-file.md), or give --synthetic.",
        )


def _named(workload: Workload) -> str:
    return workload.name if workload.path is None else workload.path.name


def fixed_words(workload: Workload) -> str | None:
    """Return that `make_batch()` seems to read data, in words; None where it draws noise.

    It is asked twice alike and once with other random numbers. Noise is equal and then another;
    what is read from a file is equal all the time, or another each time.
    """
    first, again, other = (_probed(workload, seed) for seed in (1, 1, 2))
    if not any(_is_data(one) for one in first):
        return None
    if _equal(first, again) and not _equal(first, other):
        return None
    return (
        f"make_batch() of {_named(workload)} seems to read data, of which {SYNTHETIC_BATCHES}"
        " micro-batches are trained on, again and again: write build_dataset() to train on all"
    )


def _probed(workload: Workload, seed: int) -> list[Tensor]:
    kept = random.getstate()
    with torch.random.fork_rng(devices=()):
        seed_everything(seed)
        leaves: list[Any] = tree_leaves(workload.make_batch(PROBED_SAMPLES))
    random.setstate(kept)
    return [one.detach().cpu() for one in leaves if isinstance(one, Tensor)]


def _equal(some: list[Tensor], others: list[Tensor]) -> bool:
    return len(some) == len(others) and all(map(torch.equal, some, others))


def _is_data(values: Tensor) -> bool:
    """Return whether a tensor may be read from somewhere: neither constant nor a count."""
    flat = values.reshape(-1)
    if not flat.numel():
        return False
    rows = values.reshape(-1, values.shape[-1]) if values.dim() else flat.reshape(1, 1)
    is_count = rows.shape[1] > 1 and bool((rows[:, 1:] != rows[:, :-1]).all()) and _steady(rows)
    return not is_count and bool((flat != flat[0]).any())


def _steady(rows: Tensor) -> bool:
    steps = rows[:, 1:].double() - rows[:, :-1].double()
    return bool((steps == steps[0, 0]).all())
