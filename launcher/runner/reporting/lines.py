"""Files of one JSON object a line, to which every start of a run adds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO


def open_lines(path: Path) -> IO[str]:
    """Return a file that is opened to add lines, and is made where there is none.

    A kill may have left half a line: it is ended first, or the next one would be lost with it.

    Raises:
        OSError: it cannot be written.
    """
    is_torn = _is_torn(path)
    stream = path.open("a", encoding="utf-8")
    if is_torn:
        stream.write("\n")
    return stream


def _is_torn(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            if stream.seek(0, os.SEEK_END) == 0:
                return False
            stream.seek(-1, os.SEEK_END)
            return stream.read(1) != b"\n"
    except OSError:  # There is none yet, or it can be written only.
        return False
