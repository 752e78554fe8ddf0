"""The code that a launch sends to its nodes: which files, how many bytes, and a folder of them.

SkyPilot 0.14 reads a .skyignore or a .gitignore by other rules for each way to send a folder, and
sends .git and .env with it. So the files are chosen here, once, and put into a folder of the launch
whose own .skyignore names nothing: what is measured is what travels.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..catalog.errors import UsageError
from ..catalog.files import write_atomically
from ..catalog.paths import cache_dir, config_dir, data_dir
from .keys import holds_keys

CODE_FOLDER = "code"
"""In the folder of a launch: what its nodes get as their working directory."""
SOURCE_FILE = "code.json"
"""Beside it: where that is from, so that a launch that goes on sends it as it is by then."""
OWN_FOLDERS = ("gpuplan-runs", "gpuplan-launches")
NEVER = (".git", ".env", "__pycache__", *OWN_FOLDERS)
"""Names that never travel: history and keys that no job needs, what Python compiled here, as it
does where gpuplan reads a model file, and what gpuplan itself wrote. Other keys: keys.py.
Neither do the store, the cache and the settings, where GPUPLAN_HOME is inside the folder."""
SKYIGNORE = ".skyignore"
GITIGNORE = ".gitignore"
LISTED = 5
LARGE_BYTES = 500_000_000
"""Above that, what is sent is asked about: it travels to every node, at each start."""
_IGNORED = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")


@dataclass(frozen=True, kw_only=True)
class SentFile:
    """A file that travels."""

    path: str
    """From the folder that is sent, with slashes."""
    size_bytes: int
    """Of a link: nothing, as the link alone travels."""


@dataclass(frozen=True, kw_only=True)
class Upload:
    """The files of a folder that travel to the nodes."""

    root: Path
    files: tuple[SentFile, ...]
    kept_back: tuple[str, ...] = ()
    """Files that would travel and do not, since they hold keys (keys.py)."""
    dangling: tuple[str, ...] = ()
    """Links that travel and lead out of the folder: on a node there is nothing behind them."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what the user is told of what does not travel."""
        notes = []
        if self.kept_back:
            notes.append(
                f"{_listed(self.kept_back)} not sent, as {_they(self.kept_back)} by name or content"
                " keys: pass a job what it needs with --secret NAME"
            )
        if self.dangling:
            notes.append(
                f"{_listed(self.dangling)} sent as a link out of {self.root}, with nothing behind"
                " it on a node: put data in a bucket with --data, and code into the folder"
            )
        return tuple(notes)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all of them."""
        return sum(one.size_bytes for one in self.files)

    @property
    def largest(self) -> tuple[SentFile, ...]:
        """Return the five largest, the largest first."""
        ordered = sorted(self.files, key=lambda one: (-one.size_bytes, one.path))
        return tuple(ordered[:LISTED])


def measure(root: Path, always: Sequence[PurePosixPath] = ()) -> Upload:
    """Return what a folder sends: all but what its .skyignore, else git, leaves out, and `NEVER`.

    Args:
        root: the folder.
        always: paths in it that the job needs, which travel whatever names them.

    Raises:
        UsageError: the folder cannot be read.
    """
    root = root.absolute()
    try:
        kept_back: list[str] = []
        files = tuple(_walk(root, always, kept_back))
        dangling = tuple(one.path for one in files if _leads_out(root, one.path))
        return Upload(root=root, files=files, kept_back=tuple(kept_back), dangling=dangling)
    except OSError as error:
        raise UsageError(
            f"{error.filename or root} cannot be read, and {root} is sent to the nodes:"
            f" {error.strerror or error}.",
            fix=f"name it in {root / SKYIGNORE}, or give --workdir a folder without it.",
        ) from None


def keep_source(folder: Path, root: Path, always: Sequence[PurePosixPath]) -> None:
    """Write into the folder of a launch which code it sends."""
    source = {"from": str(root.absolute()), "always": [str(one) for one in always]}
    write_atomically(folder / SOURCE_FILE, json.dumps(source, indent=1) + "\n")


def gather(folder: Path) -> None:
    """Put the code of a launch, as it is now, into its folder; it is asked for machines next.

    A launch of an older version sends the user's folder itself, and a folder that is gone since
    leaves what was sent before.

    Raises:
        OSError: the code cannot be read or the folder not be written.
        UsageError: the code cannot be read.
    """
    source_file = folder / SOURCE_FILE
    if not source_file.is_file():
        return
    source = json.loads(source_file.read_text(encoding="utf-8"))
    root = Path(source["from"])
    if not root.is_dir() and (folder / CODE_FOLDER).is_dir():
        return
    upload = measure(root, [PurePosixPath(one) for one in source["always"]])
    fresh = folder / f".{CODE_FOLDER}.new"
    _remove(fresh)
    fresh.mkdir(parents=True)
    for one in upload.files:
        _put(root / one.path, fresh / one.path)
    (fresh / SKYIGNORE).write_text("# What is here is all that gpuplan sends.\n", encoding="utf-8")
    _remove(folder / CODE_FOLDER)
    fresh.rename(folder / CODE_FOLDER)


def _walk(root: Path, always: Sequence[PurePosixPath], kept_back: list[str]) -> Iterator[SentFile]:
    by_skyignore = (root / SKYIGNORE).is_file()
    left_out = _by_skyignore(root) if by_skyignore else _by_git(root)
    own = {one.resolve() for one in (data_dir(), cache_dir(), config_dir())}
    named = {one.name for one in own}
    folders = [PurePosixPath()]
    while folders:
        here = folders.pop()
        if here.parts and not by_skyignore and (root / here / ".git").exists():
            left_out |= _by_git(root / here, below=here)  # A submodule has rules of its own.
        for entry in sorted(os.scandir(root / here), key=lambda one: one.name):
            path = here / entry.name
            is_inside = any(path.is_relative_to(one) for one in always)
            is_own = entry.name in named and Path(entry.path).resolve() in own
            never = (entry.name in NEVER or is_own) and path not in always
            is_left_out = never or (str(path) in left_out and not is_inside)
            if is_left_out and not any(one.is_relative_to(path) for one in always):
                continue
            if str(path) == SKYIGNORE:
                continue  # What it says is done, and the nodes get one that names nothing.
            is_file = entry.is_symlink() or entry.is_file()
            if is_file and path not in always and holds_keys(Path(entry.path), path):
                kept_back.append(str(path))
                continue
            if entry.is_symlink():
                yield SentFile(path=str(path), size_bytes=0)
            elif entry.is_dir():
                if is_left_out:  # On the way to what is needed, and nothing else of it.
                    left_out |= {str(path / one.name) for one in os.scandir(root / path)}
                folders.append(path)
            elif entry.is_file():
                yield SentFile(path=str(path), size_bytes=entry.stat().st_size)


def _leads_out(root: Path, path: str) -> bool:
    link = root / path
    return link.is_symlink() and not link.resolve().is_relative_to(root.resolve())


def _listed(paths: Sequence[str]) -> str:
    """Return paths for a sentence, the first ones of many."""
    more = f" and {len(paths) - LISTED} more" if len(paths) > LISTED else ""
    verb = "are" if len(paths) > 1 else "is"
    return f"{', '.join(sorted(paths)[:LISTED])}{more} {verb}"


def _they(paths: Sequence[str]) -> str:
    return "they hold" if len(paths) > 1 else "it holds"


def _by_skyignore(root: Path) -> set[str]:
    """Return the paths that a .skyignore names, read as SkyPilot reads it."""
    found: set[str] = set()
    for line in (root / SKYIGNORE).read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text and not text.startswith("#"):
            pattern = f".{text}" if text.startswith("/") else f"**/{text}"
            matches = glob.glob(pattern, root_dir=root, recursive=True, include_hidden=True)
            found |= {str(PurePosixPath(one)) for one in matches}
    return found


def _by_git(root: Path, below: PurePosixPath | None = None) -> set[str]:
    """Return the paths that git ignores in a folder; a .gitignore holds without a repository too.

    Nothing is left out where there is no git, nor where git ignores the whole folder.
    """
    asked = ["git", "-c", "safe.directory=*", "-C", str(root)]
    said = _git([*asked, *_IGNORED])
    if said is None and (root / GITIGNORE).is_file():
        with tempfile.TemporaryDirectory() as scratch:
            _git(["git", "init", "--quiet", "--bare", scratch])
            place = [f"--git-dir={scratch}", f"--work-tree={root}"]
            said = _git([*asked, *place, *_IGNORED])
    paths = [one for one in (said or "").split("\0") if one]
    if "./" in paths:
        return set()
    return {str((below or PurePosixPath()) / one) for one in paths}


def _git(command: list[str]) -> str | None:
    """Return what git says; None where there is none, or it has nothing to say of the folder."""
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError:
        return None
    return os.fsdecode(done.stdout) if done.returncode == 0 else None


def _put(source: Path, target: Path) -> None:
    """Put a file into the folder of a launch, without a second copy where the disk allows."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(os.readlink(source))
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
