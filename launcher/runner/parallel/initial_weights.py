"""First weights: every process makes them alike, or, where that is too much, the first one alone.

A model's first weights depend on the seed alone, so each process may build the whole model and keep
its shard; nothing is sent. Eight processes that build 70B parameters in fp32 would take 2.2 TB of
host memory, though. Then only the first builds it for real; the others build it without memory
(torch's meta device), and get their shards from the first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

from ....catalog.errors import UserFileError
from ....profiles.user_model.workload import Workload
from ..job import Execution, Job
from ..processes.error_text import first_line
from ..processes.processes import Processes

BYTES_PER_PARAMETER = 4
SHARE_OF_HOST = 0.5
"""Fraction of the host's memory that the copies of a node may take; building takes more briefly."""


def only_first_builds(job: Job, execution: Execution, processes: Processes) -> bool:
    """Return whether the first process alone makes the weights; the same on every process."""
    layout = execution.layout
    shards = layout.zero_stage > 0 and layout.data > 1
    if not shards or layout.tensor > 1 or layout.pipeline > 1:
        return False
    if job.one_copy is not None:
        return job.one_copy
    here = processes.world // processes.nodes
    if job.parameters is None:
        return False
    needed_bytes = job.parameters * BYTES_PER_PARAMETER * here
    told: list[Any] = [needed_bytes > SHARE_OF_HOST * host_bytes()]
    dist.broadcast_object_list(told, 0, processes.host_group)
    return bool(told[0])


def build_without_memory(workload: Workload) -> nn.Module:
    """Return the model on the meta device.

    Raises:
        UserFileError: the user's code needs values to build it.
    """
    try:
        with torch.device("meta"):
            model = workload.build_model()
        hidden = _hidden_tensors(model)
    except (NotImplementedError, RuntimeError) as error:
        hidden, reason = [], first_line(error)
    else:
        if not hidden:
            return model
        reason = f"{hidden[0]} is a tensor, but neither a parameter nor a buffer"
    raise UserFileError(
        "This host cannot hold a copy of the model for each process, and build_model() cannot"
        f" build it without values: {reason}",
        fix="register such tensors with register_buffer(), and read no values in build_model();"
        " or run fewer processes on each node.",
    )


def hand_out(model: nn.Module, values: Mapping[str, Tensor] | None) -> None:
    """Give every process its shard of the first one's weights, and its buffers whole.

    Args:
        model: sharded, on its device; on all but the first with any values.
        values: the whole weights by name, on the first process; None on the others.
    """
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, dict(values or {}), options=options)
    for buffer in model.buffers():
        # Those that are not part of the state dict, such as tables of positions.
        dist.broadcast(buffer, 0)


def host_bytes() -> float:
    """Return how much memory the host has; infinity where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return float("inf")


def _hidden_tensors(model: nn.Module) -> list[str]:
    return [
        f"{path}.{name}".lstrip(".")
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor)
    ]
