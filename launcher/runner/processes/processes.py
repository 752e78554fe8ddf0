"""This process among the others: its rank, its device, its groups and the mesh of the layout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ....catalog.errors import UsageError
from ....planner.plan.layout import Layout
from .error_text import first_line

MESH_NAMES = ("pipeline", "replicate", "shard", "tensor")
"""Outermost first: neighbours in the last lie closest, on the fastest links."""


@dataclass(frozen=True, kw_only=True)
class Processes:
    """The processes of a run, as one of them sees it."""

    rank: int
    world: int
    local_rank: int
    nodes: int
    device: torch.device
    host_group: dist.ProcessGroup | None
    """For what processes tell each other in words, apart from what devices exchange."""
    checkpoint_group: dist.ProcessGroup | None
    """A group of its own, so that saving in the background never mixes with the others."""

    @property
    def is_first(self) -> bool:
        """Whether this is the process that speaks for all."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for every process."""
        if self.host_group is not None:
            dist.monitored_barrier(self.host_group)


@contextmanager
def joined(device: str | None, timeout_s: float) -> Iterator[Processes]:
    """Join the other processes that torchrun started; leave them at the end.

    Args:
        device: cpu, cuda, or None for cuda where there is one.
        timeout_s: how long to wait for the others in one collective.

    Raises:
        UsageError: the device does not exist, or the other processes do not answer.
    """
    rank, world, local = (
        int(os.environ.get(name, default))
        for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
    )
    per_node = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    place = _device(device, local, per_node)
    host_group = checkpoint_group = None
    if world > 1:
        _join(place, timeout_s)
        timeout = timedelta(seconds=timeout_s)
        host_group, checkpoint_group = (
            dist.new_group(backend="gloo", timeout=timeout) for _ in range(2)
        )
        assert not isinstance(host_group, int) and not isinstance(checkpoint_group, int)
    try:
        yield Processes(
            rank=rank,
            world=world,
            local_rank=local,
            nodes=max(1, world // per_node),
            device=place,
            host_group=host_group,
            checkpoint_group=checkpoint_group,
        )
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _join(device: torch.device, timeout_s: float) -> None:
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    timeout = timedelta(seconds=timeout_s)
    try:
        dist.init_process_group(
            backend, timeout=timeout, device_id=device if device.type == "cuda" else None
        )
    except (dist.DistError, RuntimeError, ValueError) as error:
        place = f"{os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}"
        raise UsageError(
            f"The processes did not find each other at {place}: {first_line(error)}",
            fix="check that the port is free and open between the nodes, or give another one.",
        ) from None


def make_mesh(layout: Layout, processes: Processes) -> DeviceMesh | None:
    """Return the mesh of a layout, with dimensions `MESH_NAMES`; None for one process.

    Raises:
        UsageError: the layout takes another number of processes than there are.
    """
    if layout.accelerators != processes.world:
        raise UsageError(
            f"The plan is for {layout.accelerators} processes; there are {processes.world}.",
            fix=f"run it with --nproc {layout.accelerators} on one machine, or on nodes that have"
            f" {layout.accelerators} accelerators together.",
        )
    if processes.world == 1:
        return None
    shape = (layout.pipeline, layout.replicas, layout.shard, layout.tensor)
    return init_device_mesh(processes.device.type, shape, mesh_dim_names=MESH_NAMES)


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where a process stands in the layout."""

    data: int
    """Which part of every global batch it trains on."""
    stage: int
    """Which pipeline rank it is."""
    tensor: int

    @classmethod
    def of(cls, layout: Layout, rank: int) -> Position:
        """Return the position of a rank; tensor ranks are neighbours, stages lie farthest apart.

        >>> Position.of(Layout(data=2, tensor=2, pipeline=2), 5)
        Position(data=0, stage=1, tensor=1)
        """
        stage, inside = divmod(rank, layout.data * layout.tensor)
        data, tensor = divmod(inside, layout.tensor)
        return cls(data=data, stage=stage, tensor=tensor)


def _device(asked: str | None, local_rank: int, per_node: int) -> torch.device:
    if asked not in (None, "cpu", "cuda"):
        raise UsageError(f"There is no device {asked!r}.", fix="use cpu or cuda.")
    if asked == "cpu" or (asked is None and not torch.cuda.is_available()):
        if "OMP_NUM_THREADS" not in os.environ:
            # Every process would else take all cores, and they would wait for each other.
            torch.set_num_threads(max(1, torch.get_num_threads() // per_node))
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UsageError(
            f"torch {torch.__version__} sees no CUDA device here.",
            fix="run `gpuplan doctor` to see why, or give --device cpu.",
        )
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise UsageError(
            f"{per_node} processes on a machine with {count} devices.",
            fix=f"give --nproc {count}.",
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
