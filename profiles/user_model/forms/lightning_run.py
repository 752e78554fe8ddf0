"""What gpuplan's runner takes of a LightningModule beside its step, and what it refuses by name.

Imports nothing of Lightning itself.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

from torch.utils.data import (
    BatchSampler,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from ....catalog.errors import UserFileError
from ..checks import described
from .lightning_hooks import not_run

LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric")


def names_not_run(one: type) -> tuple[str, ...]:
    """Return what of a LightningModule's class gpuplan's runner does not run, by name."""
    classes: list[ast.ClassDef] = []
    for base in one.__mro__:
        if base.__module__.split(".")[0] in (*LIGHTNING, "torch", "builtins"):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):
            continue
        classes += [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return not_run(classes)


def samples_of(loader: Any, source: str) -> Dataset[Any]:
    """Return a loader's data set, with its `collate_fn` and whether it keeps its order.

    Raises:
        UserFileError: its samples come in an order that gpuplan's runner cannot follow.
    """
    dataset = getattr(loader, "dataset", None)
    if dataset is None:
        raise UserFileError(
            f"{source} returned {described(loader)}, not a DataLoader.",
            fix="return one torch.utils.data.DataLoader.",
        )
    if isinstance(dataset, IterableDataset):
        # Its own iterator deals it: the stream goes through unchanged.
        dataset.collate_fn = loader.collate_fn  # pyright: ignore[reportAttributeAccessIssue]
        return dataset
    sampler, batches = loader.sampler, loader.batch_sampler
    steady = type(sampler) in (RandomSampler, SequentialSampler)
    if not steady or type(batches) not in (BatchSampler, type(None)):
        found = sampler if not steady else batches
        raise UserFileError(
            f"{source} draws its samples by {type(found).__name__}, which gpuplan's runner cannot"
            " deal to several processes and continue.",
            fix="use shuffle=True or False, or its own Trainer: --command with --framework"
            " lightning.",
        )
    return _Samples(dataset, loader.collate_fn, isinstance(sampler, SequentialSampler))


class _Samples(Dataset[Any]):
    """The samples behind a loader."""

    def __init__(self, dataset: Any, collate_fn: Any, in_order: bool) -> None:
        self._dataset = dataset
        self.collate_fn = collate_fn
        self.in_order = in_order

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, place: int) -> Any:
        return self._dataset[place]
