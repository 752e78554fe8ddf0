"""What safetensors files hold: the names, dtypes, shapes and places of their tensors.

    model.safetensors               one file
    model.safetensors.index.json    names the files of a checkpoint in several, as Hugging Face's

Only headers are read here, and nothing that is read is ever run. The format is 8 bytes (the length
of the header), the header in JSON, then the tensors: https://github.com/huggingface/safetensors.
Standard library only: a command reads headers before torch is loaded, and nodes have no other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....catalog.errors import UsageError

SUFFIX = ".safetensors"
INDEX_SUFFIX = ".safetensors.index.json"
ITEM_BYTES = {
    **{"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1},
    **{"I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1},
    **{"BOOL": 1, "C64": 8},
}
"""The format's word for a dtype → bytes of one value."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
LONGEST_HEADER_BYTES = 100_000_000
"""The format's own limit."""
LENGTH_BYTES = 8
METADATA = "__metadata__"
LFS_POINTER = b"version https://git-lfs"
CONVERT = (
    "write it as safetensors once, which reads the tensors and runs nothing: python -c"
    ' "import torch, safetensors.torch as s; s.save_file({k: v.clone().contiguous() for k, v in'
    " torch.load('{name}', weights_only=True).items()}, 'model.safetensors')\""
)


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in a file."""

    path: Path
    dtype: str
    """A key of `ITEM_BYTES`."""
    shape: tuple[int, ...]
    begin: int
    """Offset of its first byte in the file."""

    @property
    def size_bytes(self) -> int:
        """Return how many bytes it takes."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def is_floating_point(self) -> bool:
        """Return whether its values are floating-point numbers."""
        return self.dtype.startswith(("F", "BF"))


def stored_tensors(place: Path) -> dict[str, StoredTensor]:
    """Return every tensor of a safetensors file, or of a folder that holds such files, by name.

    Args:
        place: `model.safetensors`, a `….safetensors.index.json`, or a folder with one of them.

    Raises:
        UsageError: nothing of the kind is there, a file is damaged or incomplete, or two files hold
            the same name. A pickle (`pytorch_model.bin`) is refused: reading one can run code.
    """
    found: dict[str, StoredTensor] = {}
    for path in weight_files(place):
        for name, tensor in _header(path):
            if name in found:
                raise UsageError(
                    f"{name} is in {found[name].path.name} and in {path.name} of {place}.",
                    fix="keep the files of one model in the folder, or name its index.json.",
                )
            found[name] = tensor
    if not found:
        raise UsageError(f"{place} holds no tensor.", fix="give the weights of a model.")
    return found


def weight_files(place: Path) -> list[Path]:
    """Return the safetensors files that a path names; see `stored_tensors`."""
    if place.is_dir():
        return _of_folder(place)
    if not place.exists():
        raise UsageError(
            f"There are no weights at {place}.",
            fix="give a .safetensors file, or the folder of a Hugging Face model (nothing is"
            " downloaded: `hf download OWNER/MODEL --local-dir FOLDER` fetches one).",
        )
    if place.name.endswith(INDEX_SUFFIX):
        return _of_index(place)
    if place.suffix == SUFFIX:
        return [place]
    if place.suffix in PICKLES:
        raise _pickle(place)
    raise UsageError(
        f"{place} is no safetensors file.",
        fix="give a .safetensors file, its .safetensors.index.json, or the folder that has them.",
    )


def _of_folder(folder: Path) -> list[Path]:
    indexes = sorted(folder.glob(f"*{INDEX_SUFFIX}"))
    if len(indexes) > 1:
        names = " and ".join(one.name for one in indexes)
        raise UsageError(f"{folder} has {names}.", fix="name one of them.")
    if indexes:
        return _of_index(indexes[0])
    files = sorted(folder.glob(f"*{SUFFIX}"))
    if files:
        return files
    pickles = sorted(one for one in folder.iterdir() if one.suffix in PICKLES)
    if pickles:
        raise _pickle(pickles[0])
    raise UsageError(
        f"{folder} has no .safetensors file.",
        fix="give the folder of a Hugging Face model, or a .safetensors file.",
    )


def _of_index(index: Path) -> list[Path]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(
            f"{index} is no index of safetensors files.", fix="fetch it again, or name the files."
        ) from None
    outside = [name for name in names if Path(str(name)).name != name]
    if outside:
        raise UsageError(
            f"{index} names {outside[0]!r}, which is no file beside it.",
            fix="fetch the index again.",
        )
    files = sorted(index.parent / name for name in names)
    lacking = [path.name for path in files if not path.is_file()]
    if lacking:
        raise UsageError(
            f"{index.name} names {lacking[0]}, which is not in {index.parent}"
            f" ({len(lacking)} of {len(files)} files are missing).",
            fix="fetch the missing files.",
        )
    return files


def _pickle(path: Path) -> UsageError:
    return UsageError(
        f"{path} is a pickle, and reading one can run code; weights are read from safetensors.",
        fix=CONVERT.replace("{name}", path.name),
    )


def _header(path: Path) -> Iterator[tuple[str, StoredTensor]]:
    """Yield the tensors of one file by name, each checked to lie inside the file."""
    try:
        with path.open("rb") as stream:
            size_bytes = stream.seek(0, 2)
            stream.seek(0)
            start = stream.read(LENGTH_BYTES)
            if LFS_POINTER.startswith(start) and start:
                raise UsageError(
                    f"{path} is a pointer of Git LFS, not the file itself.",
                    fix="fetch the file with `git lfs pull`, or with `hf download`.",
                )
            length = int.from_bytes(start, "little")
            if len(start) < LENGTH_BYTES or length > min(size_bytes, LONGEST_HEADER_BYTES):
                raise _damaged(path, "its header is longer than the file")
            text = stream.read(length)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}.", fix="check its permissions."
        ) from None
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise _damaged(path, "its header is no JSON")
    for name, entry in header.items():
        if name != METADATA:
            yield name, _tensor(path, name, entry, LENGTH_BYTES + length, size_bytes)


def _tensor(path: Path, name: str, entry: Any, start: int, size_bytes: int) -> StoredTensor:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        sizes = (*shape, begin, end)
        if not all(isinstance(one, int) and one >= 0 for one in sizes):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise _damaged(path, f"its header does not say where {name} lies") from None
    if dtype not in ITEM_BYTES:
        raise UsageError(
            f"{name} in {path.name} has the dtype {dtype!r}.",
            fix=f"convert it to one of {', '.join(ITEM_BYTES)}.",
        )
    found = StoredTensor(path, dtype, shape, start + begin)
    if end - begin != found.size_bytes:
        raise _damaged(path, f"{name} of {shape} takes {end - begin} bytes in it")
    if start + end > size_bytes:
        raise _damaged(path, f"it ends before {name} does")
    return found


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} is damaged or incomplete: {why}.", fix="fetch or write the file again."
    )
