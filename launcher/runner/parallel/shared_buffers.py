"""Buffers that training changes, such as the statistics of batch norms: the same on all replicas.

Every data-parallel rank changes its own by the batches that it has seen. Before they are used for
more than training (an evaluation, samples, a checkpoint), all take those of the first, as torch's
DDP does: else the number of an evaluation would be no one model's, and a checkpoint a mixture.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

OVER = ("shard", "replicate")
"""Dimensions of the mesh whose ranks train one stage's same layers on other samples."""
AT_ONCE_BYTES = 1 << 28


class SharedBuffers:
    """The buffers of this rank's part of a model."""

    def __init__(self, module: nn.Module, mesh: DeviceMesh | None) -> None:
        """Find who has the same.

        Args:
            module: holds this rank's layers.
            mesh: of the layout; None for one process.
        """
        self._module = module
        self._groups = [
            mesh.get_group(name)
            for name in (OVER if mesh is not None else ())
            if mesh is not None and mesh.size(_place(mesh, name)) > 1
        ]

    @torch.no_grad()
    def take_first(self) -> None:
        """Take those of the first data-parallel rank; every rank calls it."""
        buffers = [_local(one) for one in self._module.buffers()]
        for group in self._groups if buffers else ():
            dist._broadcast_coalesced(  # pyright: ignore[reportPrivateImportUsage]
                group, buffers, AT_ONCE_BYTES, 0
            )


def _place(mesh: DeviceMesh, name: str) -> int:
    return (mesh.mesh_dim_names or ()).index(name)


def _local(buffer: Tensor) -> Tensor:
    return buffer.to_local() if isinstance(buffer, DTensor) else buffer
