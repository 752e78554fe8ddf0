"""Reads a checkpoint of torch.distributed without running what somebody may have put into it.

torch reads `.metadata`, and whatever is no tensor, with `pickle`, which imports and calls what the
file says. Checkpoints come from buckets and colleagues: here only the classes are known that one
holds, and values are read as `torch.load(weights_only=True)` reads them.
"""

from __future__ import annotations

import enum
import io
import pickle
from pathlib import Path, PurePosixPath
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import ReadItem

METADATA_FILE = ".metadata"
"""Where torch says which tensors lie where."""
_OF_TORCH = "torch.distributed.checkpoint."
KNOWN = frozenset(
    {
        *(
            (f"{_OF_TORCH}metadata", name)
            for name in (
                "BytesStorageMetadata",
                "ChunkStorageMetadata",
                "Metadata",
                "MetadataIndex",
                "StorageMeta",
                "TensorProperties",
                "TensorStorageMetadata",
                "_MEM_FORMAT_ENCODING",
            )
        ),
        (f"{_OF_TORCH}filesystem", "_StorageInfo"),
        ("torch", "Size"),
        ("torch.serialization", "_get_layout"),
        ("collections", "OrderedDict"),
        ("pathlib", "PosixPath"),
        ("pathlib", "WindowsPath"),
        # Since Python 3.13 paths say where they are written, not where they are imported from.
        ("pathlib._local", "PosixPath"),
        ("pathlib._local", "WindowsPath"),
    }
)
"""Module and name of all that `.metadata` is made of, beside torch's dtypes."""


def _member(of: object, name: str) -> Any:
    """Return a member of an enumeration: Python 3.11.0 to 3.11.3 write one as a `getattr`."""
    if not (isinstance(of, enum.EnumMeta) and name in of.__members__):
        raise pickle.UnpicklingError(
            f"{METADATA_FILE} asks for {name!r} of something, which no checkpoint holds"
        )
    return of.__members__[name]


class _Unpickler(pickle.Unpickler):
    """Makes what `.metadata` is made of, and nothing else."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) == ("builtins", "getattr"):
            return _member
        is_dtype = module_name == "torch" and isinstance(
            getattr(torch, global_name, None), torch.dtype
        )
        if not is_dtype and (module_name, global_name) not in KNOWN:
            raise pickle.UnpicklingError(
                f"{METADATA_FILE} asks for {module_name}.{global_name}, which no checkpoint holds"
            )
        if module_name.startswith("pathlib"):
            return PurePosixPath  # Where it was written, maybe on another system.
        return super().find_class(module_name, global_name)


class CheckpointReader(FileSystemReader):
    """torch's reader of a folder."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return what a checkpoint holds, and where.

        Raises:
            OSError: the file cannot be read.
            pickle.UnpicklingError: it is damaged, or asks for what a checkpoint does not hold.
        """
        place = Path(self.path) / METADATA_FILE
        with place.open("rb") as stream:
            found = _Unpickler(stream).load()
        if not isinstance(found, Metadata):
            raise pickle.UnpicklingError(f"{METADATA_FILE} holds a {type(found).__name__}")
        if found.storage_meta is None:
            found.storage_meta = StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


class _Planner(DefaultLoadPlanner):
    """Puts what is read where it belongs, as torch does."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Read a value that is no tensor: numbers, words, and lists of them."""
        safe = io.BytesIO()
        torch.save(torch.load(value, weights_only=True), safe)
        safe.seek(0)
        super().load_bytes(read_item, safe)


def load(
    wanted: dict[str, Any],
    checkpoint: Path,
    *,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
) -> None:
    """Fill tensors and values from a checkpoint; collective, unless `no_dist`.

    Args:
        wanted: by the names of the checkpoint, replaced in place.
        checkpoint: its folder.
        process_group: all processes that read.
        no_dist: whether this process reads alone.
    """
    dcp.load(  # pyright: ignore[reportPrivateImportUsage]
        wanted,
        storage_reader=CheckpointReader(checkpoint),
        planner=_Planner(),
        process_group=process_group,
        no_dist=no_dist,
    )
