"""What failed in a process that loads data, with the user's own file and line.

torch raises it again in the training process as text: the user's frames are in the message alone.
"""

from __future__ import annotations

import linecache
import re
from pathlib import Path

from .....catalog.errors import GpuplanError, UserFileError
from .....profiles.user_model.failures import UserLine, is_users

CAUGHT = re.compile(r"Caught (\w+) in DataLoader worker process \d+\.")
DIED = re.compile(r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (.+)")
FRAME = re.compile(r'^ *File "(.+)", line (\d+), in (.+)$', re.MULTILINE)


def worker_failure(error: BaseException, path: Path) -> GpuplanError | None:
    """Return the error for the user, of what a process that loads data raised or died of.

    Args:
        error: what the training process was told.
        path: the user's model file.
    """
    text = str(error)
    died = DIED.search(text)
    if died is not None:
        return UserFileError(
            f"A process that loads the data of {path.name} {died.group(1).rstrip('.')}.",
            fix="signal 9 (Killed) is often the system short of memory: give fewer --workers; with"
            " --workers 0 what fails is told with its line.",
        )
    frames = [found for found in FRAME.findall(text) if is_users(found[0], path)]
    if CAUGHT.search(text) is None or not frames:
        return None
    file, number, function = frames[-1]
    place = UserLine(
        file=_relative(Path(file), path),
        number=int(number),
        function=function,
        source=linecache.getline(file, int(number)).strip(),
    )
    what = text.strip().splitlines()[-1]
    return UserFileError(
        f"{place.where}: {what} (in a process that loads data){place.shown}",
        fix=f"correct {place.file} or the data it reads, then run this again.",
    )


def _relative(file: Path, path: Path) -> str:
    return str(file.relative_to(path.parent)) if file.is_relative_to(path.parent) else str(file)
