"""Where a model is cut into pipeline stages, and which parameters each of them needs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import nn

from ....catalog.errors import UsageError
from ....planner.parallelism.pipeline_chunks import chunk_sizes
from ....profiles.user_model.checks import Batch
from .blocks import block_paths
from .dataflow import BEFORE, BlockOutput, LossFunction, record


@dataclass(frozen=True, kw_only=True)
class StageCut:
    """Where a model is cut, and what each side needs."""

    paths: tuple[str, ...]
    """Module paths of all blocks, in order."""
    sizes: tuple[int, ...]
    """Blocks of each stage."""
    first: frozenset[str]
    """Names of parameters and buffers that are read before the blocks, or never."""
    last: frozenset[str]
    """Names of those that are read after the blocks."""
    tied: tuple[str, ...]
    """Parameters that the first and the last stage both train, by their first name."""
    outputs: tuple[BlockOutput, ...]
    writes_input: tuple[bool, ...]

    @property
    def stages(self) -> int:
        """Return how many there are."""
        return len(self.sizes)

    def blocks_of(self, stage: int) -> range:
        """Return the numbers of a stage's blocks."""
        ends = list(accumulate(self.sizes))
        return range(ends[stage] - self.sizes[stage], ends[stage])

    def outside_of(self, stage: int) -> frozenset[str]:
        """Return the names of a stage's parameters and buffers outside of the blocks."""
        first = self.first if stage == 0 else frozenset[str]()
        return first | (self.last if stage == self.stages - 1 else frozenset[str]())


def cut_model(
    compute_loss: LossFunction,
    model: nn.Module,
    micro_batch: Batch,
    stages: int,
    *,
    device: torch.device | None = None,
) -> StageCut:
    """Return where to cut a model into stages, or say why it cannot be.

    Args:
        compute_loss: the workload's.
        model: the workload's, whole and uncompiled; it comes back as it was.
        micro_batch: one as in training; only its shapes are used.
        stages: pipeline ranks times virtual stages.
        device: where the stages will run; nothing is put there.

    Raises:
        UsageError: no repeated blocks, or they do not run one after the other.
        UnsupportedError: fewer blocks than stages.
    """
    _check_not_compiled(model)
    paths = block_paths(model)
    sizes = tuple(chunk_sizes(len(paths), stages))
    found = record(compute_loss, model, micro_batch, paths, device or torch.device("cpu"))
    after = len(paths)
    outside = {
        name: phases
        for name, phases in found.reads.items()
        if not any(name.startswith(path + ".") for path in paths)
    }
    both = {name for name, phases in outside.items() if {BEFORE, after} <= phases}
    return StageCut(
        paths=paths,
        sizes=sizes,
        first=frozenset(name for name, phases in outside.items() if not phases or BEFORE in phases),
        last=frozenset(name for name, phases in outside.items() if after in phases),
        tied=tuple(name for name, _ in model.named_parameters() if name in both),
        outputs=found.outputs,
        writes_input=found.writes_input,
    )


def _check_not_compiled(model: nn.Module) -> None:
    for module in model.modules():
        if hasattr(module, "_orig_mod") or module._compiled_call_impl is not None:
            raise UsageError(
                "The model file compiles the model itself, which pipeline stages cannot cut.",
                fix="leave torch.compile out of the file, and let the plan ask for it.",
            )
