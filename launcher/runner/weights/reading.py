"""Safetensors files as a checkpoint that torch.distributed reads: each rank its own slices.

A file is mapped, not read: a rank that holds an eighth of a weight touches an eighth of its pages,
which the processes of a node share, and copies them straight into the memory that it trains with.
Beside the model this takes no memory but what one slice needs on its way to another device.
"""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from .files import StoredTensor

# One process reads alone on purpose.
warnings.filterwarnings("ignore", message="torch.distributed is disabled", module="torch")
DTYPES: dict[str, torch.dtype] = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8},
    **{"BOOL": torch.bool, "C64": torch.complex64},
}
"""The format's word for a dtype → torch's."""


def read_into(tensors: Mapping[str, Any], stored: Mapping[str, StoredTensor]) -> None:
    """Fill tensors from files, each rank for itself: of a sharded one only its own slices.

    Args:
        tensors: by name, plain or spread over ranks (`DTensor`), of any floating-point dtype and
            device; each has the whole shape of what is stored.
        stored: at least the same names.
    """
    reader = WeightReader({name: stored[name] for name in tensors})
    # Every rank may hold other names (pipeline stages), and none waits for another.
    dcp.load(  # pyright: ignore[reportPrivateImportUsage]
        dict(tensors), storage_reader=reader, no_dist=True
    )


class MappedFiles:
    """Tensors as they lie in files, without reading them."""

    def __init__(self) -> None:
        self._maps: dict[Path, mmap.mmap] = {}

    def tensor(self, stored: StoredTensor) -> Tensor:
        """Return a tensor over the bytes of a file; what is written to it stays in this process."""
        dtype = DTYPES[stored.dtype]
        if not stored.size_bytes:
            return torch.empty(stored.shape, dtype=dtype)
        raw = torch.frombuffer(
            self._map(stored.path),
            dtype=torch.uint8,
            count=stored.size_bytes,
            offset=stored.begin,
        )
        is_aligned = stored.begin % dtype.itemsize == 0
        return (raw if is_aligned else raw.clone()).view(dtype).reshape(stored.shape)

    def _map(self, path: Path) -> mmap.mmap:
        if path not in self._maps:
            with path.open("rb") as stream:
                self._maps[path] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
        return self._maps[path]


class WeightReader(StorageReader):
    """Reads the slices that torch.distributed.checkpoint asks for out of safetensors files."""

    def __init__(self, stored: Mapping[str, StoredTensor]) -> None:
        self._stored = stored
        self._files = MappedFiles()

    def reset(self, checkpoint_id: Any = None) -> None:
        """Do nothing: there is only one set of files."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Return False: it is never chosen by a path."""
        return False

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return every tensor as one chunk."""
        return Metadata(
            state_dict_metadata={
                name: TensorStorageMetadata(
                    properties=TensorProperties(dtype=DTYPES[one.dtype]),
                    size=torch.Size(one.shape),
                    chunks=[
                        ChunkStorageMetadata(
                            offsets=torch.Size([0] * len(one.shape)), sizes=torch.Size(one.shape)
                        )
                    ],
                )
                for name, one in self._stored.items()
            },
            storage_data={MetadataIndex(name): one for name, one in self._stored.items()},
        )

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Do nothing: a file is mapped when a slice of it is read."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Copy the slices of a plan to where they belong."""
        for item in plan.items:
            source = self._files.tensor(self._stored[item.storage_index.fqn])
            for dimension, (offset, length) in enumerate(
                zip(item.storage_offsets, item.lengths, strict=True)
            ):
                source = source.narrow(dimension, offset, length)
            target = planner.resolve_tensor(item).detach()
            target.copy_(source)
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done
