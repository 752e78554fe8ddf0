"""Which checkpoints in a mounted bucket have arrived there, and which may be deleted.

SkyPilot mounts results with rclone and a cache (`--vfs-cache-mode full`): what is written goes up
later, and what is deleted is deleted at once. The node sees its own files before the bucket has
them, so only rclone's word counts: beside each file of its cache it keeps a JSON file whose `Dirty`
is true until the file was uploaded (rclone, vfs/vfscache/item.go). What other nodes wrote is seen
only once it is in the bucket.

    ~/.cache/rclone/MOUNT/vfsMeta/REMOTE/BUCKET/…/checkpoints/step-00000200/run.json
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from ....catalog.errors import UsageError
from ....catalog.files import write_atomically
from .folder import RUN_FILE

CACHES = Path(".cache", "rclone")
"""Below the home of whoever mounts (SkyPilot 0.14: `RCLONE_CACHE_DIR`)."""
STATES = "vfsMeta"
UPLOADED_AFTER_S = 3600.0
"""When a checkpoint counts as uploaded where rclone's word is not found: as long as a launch lets
machines stay for uploads after a run."""
SAVED_FILE = "saved.json"
"""The steps of checkpoints that a node saw whole: what a run without any is held against."""


def deletable(
    whole: Sequence[Path], *, keep: int, best: str | None, now_s: float, home: Path | None = None
) -> list[Path]:
    """Return the checkpoints that may be deleted from a bucket.

    Beside the newest ones stay the newest that has arrived, which a run could be resumed from if
    the machine went away now, and the oldest that has not: with that deleted, uploads that take
    longer than the time from one checkpoint to the next would never end.

    Args:
        whole: on this node, oldest first.
        keep: how many of the newest stay anyway.
        best: name of one that stays; None for none.
        now_s: seconds since 1970.
        home: of the user who mounts; None is that of this process.
    """
    root = states_root(whole[-1], home or Path.home()) if whole else None
    arrived = [_has_arrived(one, root, now_s) for one in whole]
    newest = max((at for at, has in enumerate(arrived) if has), default=-1)
    stays = {newest, newest + 1, *range(len(whole) - keep, len(whole))}
    return [one for at, one in enumerate(whole) if at not in stays and one.name != best]


def states_root(checkpoint: Path, home: Path) -> Path | None:
    """Return the folder of rclone's words that stands for a folder of checkpoints, or None.

    Args:
        checkpoint: one that this node has just written, so that its files are in the cache.
        home: of the user who mounts.
    """
    mount = _mount_of(checkpoint)
    if mount is None:
        return None
    inside = checkpoint.resolve().relative_to(mount)
    for states in sorted((home / CACHES).glob(f"*/{STATES}")):
        for found in states.glob(f"**/{inside.as_posix()}/{RUN_FILE}"):
            return found.parents[1]
    return None


def note_saved(folder: Path, whole: Sequence[Path]) -> None:
    """Write which steps have whole checkpoints on this node, once there are two."""
    if len(whole) > 1:
        steps = [int(one.name.removeprefix("step-")) for one in whole]
        write_atomically(folder / SAVED_FILE, json.dumps({"steps": steps}) + "\n")


def lost(folder: Path) -> UsageError | None:
    """Return the error of a bucket without a whole checkpoint that had two; None where it had not.

    A run that was interrupted while its first one was uploaded begins anew: nothing can be done.
    """
    steps = {int(one.name.removeprefix("step-")) for one in folder.glob("step-*") if one.is_dir()}
    steps |= _saved(folder)
    if len(steps) < 2:
        return None
    return UsageError(
        f"No checkpoint in {folder} is whole, though this run has written some, up to step"
        f" {max(steps)}: what is left of them was not uploaded, or was deleted since.",
        fix="look at what the bucket holds (older versions, if it keeps them). To begin anew,"
        " launch the plan again, which takes another folder, or delete step-* and"
        f" {SAVED_FILE} of that folder in the bucket and resume the run.",
    )


def _saved(folder: Path) -> set[int]:
    try:
        values = json.loads((folder / SAVED_FILE).read_text(encoding="utf-8"))
        return {int(step) for step in values["steps"]}
    except (OSError, ValueError, TypeError, KeyError):
        return set()


def _has_arrived(checkpoint: Path, root: Path | None, now_s: float) -> bool:
    if root is None:
        try:
            return now_s - (checkpoint / RUN_FILE).stat().st_mtime >= UPLOADED_AFTER_S
        except OSError:
            return False
    return not any(_is_dirty(state) for state in (root / checkpoint.name).glob("**/*"))


def _is_dirty(state: Path) -> bool:
    """Return whether rclone has still to upload a file; True where its word cannot be read."""
    if state.is_dir():
        return False
    try:
        return bool(json.loads(state.read_text(encoding="utf-8"))["Dirty"])
    except FileNotFoundError:
        return False  # It left the cache, which only what has arrived does.
    except (OSError, ValueError, TypeError, KeyError):
        return True


def _mount_of(path: Path) -> Path | None:
    """Return where the file system of a path is mounted, without links; None for the root's."""
    for folder in path.resolve().parents:
        if os.path.ismount(folder):
            return None if folder == folder.parent else folder
    return None
