"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

SCRATCH_SUFFIX = ".tmp"
"""Ending of a file that is being written; a killed process may leave one behind."""
OPEN_FILES = re.compile(r"/dev/fd|/proc/\d+(/task/\d+)?/fd")
"""Folders whose entries are the files that a process has open."""
MOST_LINKS = 40
"""As many links in a row as Linux follows."""


def write_chosen(path: Path, text: str | bytes, *, new_mode: int = 0o644) -> None:
    """Write the file that the user named, whatever is there.

    A regular file is written whole or not at all and keeps its permissions and owner, a link is
    followed, and what is no regular file (a device, a pipe) is written into and stays what it is.

    Args:
        path: As the user named it; its folder is not made.
        text: All of it; text is written as UTF-8.
        new_mode: The permissions of a file that was not there.

    Raises:
        OSError: It cannot be written there; the caller says what that means.
    """
    try:
        there = path.stat()
    except FileNotFoundError:
        there = None
    if there is not None and (not stat.S_ISREG(there.st_mode) or _is_open_file(path)):
        # Appended: the shell's `>>` means what was there before to stay, and `>` has emptied it.
        with open(path, "ab") as stream:
            stream.write(text.encode() if isinstance(text, str) else text)
        return
    target = Path(os.path.realpath(path))
    if there is None:
        write_atomically(target, text, mode=new_mode, make_folder=False)
        return
    mode, owner = stat.S_IMODE(there.st_mode), (there.st_uid, there.st_gid)
    write_atomically(target, text, mode=mode, owner=owner, make_folder=False)


@contextlib.contextmanager
def one_writer(lock: Path) -> Iterator[None]:
    """Let one process at a time read and write anew what a lock file stands for; others wait.

    Where the file system has no locks, nobody waits. The file stays, and its folder is made.

    Raises:
        OSError: The lock file cannot be made.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as stream:
        if fcntl is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def make_private(folder: Path) -> None:
    """Make a folder that nobody but its owner enters; one that is there is narrowed to that.

    A folder in which a group may write is a team's: it is closed to others alone.

    Raises:
        OSError: It cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    narrow(folder)


def narrow(path: Path) -> None:
    """Take from others, and from a group that may not write there, what they may do with a path.

    A file follows the folder that it is in. What belongs to another user, or lies on a disk that
    keeps no permissions, stays as it is.
    """
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
        folder = path if path.is_dir() else path.parent
        is_of_team = stat.S_IMODE(folder.stat().st_mode) & stat.S_IWGRP
        kept = mode & ~(0o007 if is_of_team else 0o077)
        if kept != mode:
            path.chmod(kept)


def write_atomically(
    path: Path,
    content: str | bytes,
    *,
    mode: int | None = None,
    owner: tuple[int, int] | None = None,
    make_folder: bool = True,
) -> None:
    """Write a file so that a reader, a full disk or a crash never sees or leaves a part of it.

    The content goes to a scratch file in the same folder, to the disk, and then takes the place of
    what was there. If that fails, what was there stays and the scratch file goes.

    Args:
        path: The file.
        content: All of it; text is written as UTF-8.
        mode: The permissions it gets whatever the umask says; None: those of any new file.
        owner: The user and the group it belongs to, where this process may give it to them;
            None: those of any new file.
        make_folder: Make the folder of the file, if need be.

    Raises:
        OSError: It cannot be written there; the caller says what that means.
    """
    if make_folder:
        path.parent.mkdir(parents=True, exist_ok=True)
    text = isinstance(content, str)
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}{SCRATCH_SUFFIX}")
    try:
        with open(
            scratch,
            "x" if text else "xb",
            encoding="utf-8" if text else None,
            opener=None if mode is None else _open_for_owner,
        ) as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if owner is not None:
            _give_to(scratch, owner)
        if mode is not None:
            scratch.chmod(mode)
        os.replace(scratch, path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def _open_for_owner(path: str, flags: int) -> int:
    """Open a file that nobody else can open before it has its permissions."""
    return os.open(path, flags, 0o600)


def _give_to(path: Path, owner: tuple[int, int]) -> None:
    """Give a file to a user and a group; it stays this process's own where that is not allowed."""
    made = path.stat()
    if (made.st_uid, made.st_gid) == owner:
        return
    with contextlib.suppress(PermissionError):
        os.chown(path, *owner)


def _is_open_file(path: Path) -> bool:
    """Return whether a path is another name of a file this process has open, as /dev/stdout is."""
    for _ in range(MOST_LINKS):
        folder = os.path.realpath(path.parent)
        if OPEN_FILES.fullmatch(folder):
            return True
        if not path.is_symlink():
            return False
        path = Path(folder, os.readlink(path))
    return False
