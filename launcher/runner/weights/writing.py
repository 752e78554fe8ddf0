"""Safetensors files, written so that no more than a few tensors are in memory at a time."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .files import INDEX_SUFFIX, ITEM_BYTES, LENGTH_BYTES, METADATA, SUFFIX
from .reading import DTYPES

WORDS = {dtype: word for word, dtype in DTYPES.items()}
"""torch's dtype → the format's word."""
BATCH_BYTES = 256_000_000
"""Read at a time; one tensor may be larger."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """A tensor of a file, and what it is made of."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    sources: tuple[str, ...]
    """Names of what is read for it."""
    source_bytes: int
    make: Callable[[Mapping[str, Tensor]], Tensor]
    """Makes it of those."""

    @property
    def size_bytes(self) -> int:
        """Return how many bytes it takes in the file."""
        return math.prod(self.shape) * ITEM_BYTES[WORDS[self.dtype]]


def write_weights(
    folder: Path,
    outputs: Sequence[Output],
    read: Callable[[Sequence[str]], Mapping[str, Tensor]],
    *,
    stem: str,
    max_file_bytes: int,
    metadata: Mapping[str, str],
) -> list[Path]:
    """Write tensors as one safetensors file, or as several with an index; return the paths.

    Args:
        folder: that exists.
        outputs: in the order in which they are dealt to files.
        read: returns tensors by name.
        stem: `model` makes `model.safetensors`, or `model-00001-of-00003.safetensors` and so on
            with `model.safetensors.index.json`.
        max_file_bytes: of tensors in one file; a larger tensor has a file of its own.
        metadata: of every file, words by name.

    Raises:
        OSError: it cannot be written.
    """
    dealt = _dealt(outputs, max_file_bytes)
    names = (
        [f"{stem}{SUFFIX}"]
        if len(dealt) == 1
        else [f"{stem}-{at:05d}-of-{len(dealt):05d}{SUFFIX}" for at in range(1, len(dealt) + 1)]
    )
    for name, members in zip(names, dealt, strict=True):
        _write_file(folder / name, members, read, metadata)
    paths = [folder / name for name in names]
    if len(dealt) > 1:
        index = {
            "metadata": {"total_size": sum(one.size_bytes for one in outputs)},
            "weight_map": {
                one.name: name
                for name, members in zip(names, dealt, strict=True)
                for one in members
            },
        }
        paths.append(folder / f"{stem}{INDEX_SUFFIX}")
        paths[-1].write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return paths


def _dealt(outputs: Iterable[Output], max_file_bytes: int) -> list[list[Output]]:
    files: list[list[Output]] = [[]]
    size_bytes = 0
    for one in outputs:
        if files[-1] and size_bytes + one.size_bytes > max_file_bytes:
            files.append([])
            size_bytes = 0
        files[-1].append(one)
        size_bytes += one.size_bytes
    return files


def _write_file(
    path: Path,
    outputs: Sequence[Output],
    read: Callable[[Sequence[str]], Mapping[str, Tensor]],
    metadata: Mapping[str, str],
) -> None:
    # Widest values first, so that each begins at a multiple of its own width.
    ordered = sorted(outputs, key=lambda one: -one.dtype.itemsize)
    header: dict[str, Any] = {METADATA: dict(metadata)}
    at = 0
    for one in ordered:
        header[one.name] = {
            "dtype": WORDS[one.dtype],
            "shape": list(one.shape),
            "data_offsets": [at, at + one.size_bytes],
        }
        at += one.size_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    with path.open("xb") as stream:
        stream.write(len(text).to_bytes(LENGTH_BYTES, "little") + text)
        for batch in _batches(ordered):
            found = read([name for one in batch for name in one.sources])
            for one in batch:
                stream.write(_bytes(one, one.make(found)))
        stream.flush()
        os.fsync(stream.fileno())


def _batches(outputs: Sequence[Output]) -> Iterator[list[Output]]:
    batch: list[Output] = []
    size_bytes = 0
    for one in outputs:
        if batch and size_bytes + one.source_bytes > BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
        batch.append(one)
        size_bytes += one.source_bytes
    if batch:
        yield batch


def _bytes(output: Output, tensor: Tensor) -> Any:
    """Return a tensor's values as a buffer."""
    assert tuple(tensor.shape) == output.shape, output.name
    flat = tensor.detach().to(output.dtype).contiguous().flatten()
    return flat.view(torch.uint8).numpy()
