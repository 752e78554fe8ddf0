"""The log of a launch's job: shown, and kept here once its machines are gone."""

from __future__ import annotations

import contextlib
import io
from collections import deque
from pathlib import Path
from typing import TextIO

from ....catalog.files import write_atomically
from ...store.launch_record import LaunchRecord
from ..engine import Engine, EngineError, EngineJob

MOST_CHARACTERS = 32_000_000
"""Of a log that is kept: one of many days would not fit into memory while machines wait to go."""


def log_path(record: LaunchRecord, attempt: int) -> Path:
    """Return where the log of an attempt is kept once its job has ended."""
    return Path(record.folder) / f"job-{attempt}.log"


def keep_log(engine: Engine, record: LaunchRecord, job: EngineJob, known: str | None) -> str:
    """Keep the log of a job beside its task, since it goes with the machines; return it.

    Args:
        engine: where it is, unless it is known.
        record: the launch.
        job: its own.
        known: the log as it was shown.
    """
    text = _log_of(engine, record, job) if known is None else known
    if text is None:
        return ""  # It may be gone already; the job's own status still tells.
    last = record.last
    number = 1 if last is None else last.number
    # The folder may have been removed, and a log is not worth failing for.
    with contextlib.suppress(OSError):
        # A script prints what it likes: what is no text is not worth a machine that stays on.
        write_atomically(log_path(record, number), text.encode("utf-8", "replace"))
    return text


def _log_of(engine: Engine, record: LaunchRecord, job: EngineJob) -> str | None:
    out = LogEnd()
    try:
        if record.managed:
            engine.tail_managed(job.job_id, out, follow=False)
        else:
            engine.tail(record.cluster, job.job_id, out, follow=False)
    except EngineError:
        return None
    return out.getvalue()


class LogEnd(io.StringIO):
    """Keeps the end of what is written: there is what the guard says, however long a log is."""

    def __init__(self, most: int = MOST_CHARACTERS) -> None:
        super().__init__()
        self._most = most
        self._parts: deque[str] = deque()
        self._kept = 0
        self._dropped = 0

    def write(self, text: str, /) -> int:
        """Write a text, in place of the oldest ones where they become too many."""
        self._parts.append(text[-self._most :])
        self._dropped += len(text) - len(self._parts[-1])
        self._kept += len(self._parts[-1])
        while self._kept > self._most and len(self._parts) > 1:
            oldest = len(self._parts.popleft())
            self._kept -= oldest
            self._dropped += oldest
        return len(text)

    def getvalue(self) -> str:
        """Return what is kept; the first line says how much is not."""
        said = f"gpuplan: {self._dropped:,} characters of this log before are not kept.\n"
        return (said if self._dropped else "") + "".join(self._parts)


class Copied(LogEnd):
    """Keeps the end of what is written, and writes it to a stream too, if there is one."""

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._stream = stream

    def write(self, text: str, /) -> int:
        """Write a text to both."""
        if self._stream is not None:
            self._stream.write(text)
        return super().write(text)

    def flush(self) -> None:
        """Show what was written."""
        if self._stream is not None:
            self._stream.flush()
