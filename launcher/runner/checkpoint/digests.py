"""A digest of every file of a checkpoint, so that damage which torch does not see is seen.

torch.distributed.checkpoint checks no bytes inside a tensor: a disk, a network or a copy that
changes some of them gives other weights, without an error. So each rank sums up what it writes
(CRC-32, which notices any change of up to 32 bits in a row, and all others but one in four
billion), `run.json` keeps the sums of all, and a run that goes on compares them before it reads.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from io import BufferedWriter, FileIO, IOBase
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

READ_BYTES = 1 << 22
"""So much of a file is in memory at once."""
ATTRIBUTE = "gpuplan_digest"
DIGESTS, OWN_DIGEST = "digests", "digest"
"""Keys of `run.json`: those of the other files, by name; that of all its other keys."""


class DigestedWriter(FileSystemWriter):
    """torch's writer, which also says what each file's digest is, once it has finished."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, sync_files=True)
        self._summed = self.fs = _SummedFiles()
        self.digests: dict[str, str] = {}
        """By file, those of all ranks; on the process that coordinates, when all is written."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's part; its digests go with the results to whoever coordinates."""
        written = super().write_data(plan, planner)
        for one in written.value():
            digest = self._summed.digests.get(one.storage_data.relative_path)
            # The class is frozen; what it is asked for stays as it was.
            object.__setattr__(one, ATTRIBUTE, digest)
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write what is where, and keep the digests of all ranks."""
        for one in (one for of_rank in results for one in of_rank):
            digest = getattr(one, ATTRIBUTE, None)
            if digest is not None:
                self.digests[one.storage_data.relative_path] = digest
        super().finish(metadata, results)


class _SummedFiles(FileSystem):
    """Files whose digests are known when they are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.digests: dict[str, str] = {}

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Generator[IOBase]:
        """Yield a file to write, from its beginning on; any other as torch opens it."""
        if mode != "wb":
            with super().create_stream(path, mode) as other:
                yield other
            return
        with _Summed(FileIO(path, "wb")) as stream:
            yield stream
        self.digests[Path(path).name] = _words(stream.sum)


class _Summed(BufferedWriter):
    """Sums up what is written, which torch does in order: it asks for no place in a file."""

    sum = 0

    def write(self, buffer: Any, /) -> int:
        self.sum = zlib.crc32(buffer, self.sum)
        return super().write(buffer)

    def seek(self, *arguments: Any) -> int:
        raise OSError("a checkpoint is written in order")


def file_digest(path: Path) -> str:
    """Return the digest of a file's content.

    Raises:
        OSError: it cannot be read.
    """
    found = 0
    with path.open("rb", buffering=0) as stream:
        while part := stream.read(READ_BYTES):
            found = zlib.crc32(part, found)
    return _words(found)


def signed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `run.json` says, with a digest of it."""
    as_read = json.loads(json.dumps(dict(facts)))
    return {**as_read, OWN_DIGEST: _of_facts(as_read)}


def is_as_written(facts: Mapping[str, Any]) -> bool:
    """Return whether `run.json` says what it said when it was written, if it has a digest."""
    return OWN_DIGEST not in facts or facts[OWN_DIGEST] == _of_facts(facts)


def why_damaged(
    checkpoint: Path, facts: Mapping[str, Any], *, part: int = 0, parts: int = 1
) -> str | None:
    """Return which file beside `run.json` is not as it was written; None where none is.

    One that an older version wrote, without digests, is taken as it is.

    Args:
        checkpoint: its folder.
        facts: what its `run.json` says.
        part: which share of its files to look at; each of several ranks takes its own.
        parts: how many there are.
    """
    kept = facts.get(DIGESTS) or {}
    for name in sorted(kept)[part::parts]:
        try:
            if file_digest(checkpoint / name) != kept[name]:
                return f"{name} is not as it was written: its bytes have changed since"
        except OSError as error:
            return f"{name}: {error.strerror or error}"
    return None


def _of_facts(facts: Mapping[str, Any]) -> str:
    whole = {name: value for name, value in facts.items() if name != OWN_DIGEST}
    return _words(zlib.crc32(json.dumps(whole, sort_keys=True).encode()))


def _words(found: int) -> str:
    return f"crc32:{found:08x}"
