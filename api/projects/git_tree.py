"""Files of a project as they were at a git revision; the user's tree and index stay as they are."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...catalog.errors import UsageError

LONGEST_S = 300.0
"""Of one git command; a checkout of a repository of some GB ends within it."""


@contextmanager
def files_at(path: Path, revision: str) -> Iterator[Path]:
    """Yield the path of a file as it was at a revision, in a temporary folder.

    The whole tree of the revision lies around it, as model files import what is beside them.
    Nothing is written into the repository: the files are written through an index of their own.

    Args:
        path: the file as it is now; it need not exist now.
        revision: as git names it: a tag, `main`, `HEAD~2`.

    Raises:
        UsageError: it is in no repository, there is no such revision, or that has no such file.
    """
    folder = path.absolute().parent
    try:
        prefix = _git(folder, "rev-parse", "--show-prefix").strip("\n")
    except UsageError as error:
        raise UsageError(
            f"{path} is in no git repository that can be read: {error.message}",
            fix="compare with a kept report instead: `gpuplan report -o report.json`.",
        ) from None
    try:
        commit = _git(
            folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
        ).strip()
    except UsageError:
        raise UsageError(
            f"There is no git revision {revision!r} here.",
            fix="see them with `git log --oneline`; in a shallow clone fetch it first.",
        ) from None
    with tempfile.TemporaryDirectory(prefix="gpuplan-diff-") as made:
        tree = Path(made) / "tree"
        tree.mkdir()
        index = {"GIT_INDEX_FILE": str(Path(made) / "index")}
        top = Path(_git(folder, "rev-parse", "--show-toplevel").strip("\n"))
        _git(top, "read-tree", commit, more=index)
        _git(top, "checkout-index", "--all", f"--prefix={tree}{os.sep}", more=index)
        found = tree / prefix / path.name
        if not found.is_file():
            raise UsageError(
                f"{revision} has no file {prefix}{path.name}.",
                fix="name a later revision, or compare with a report JSON file.",
            )
        yield found


def _git(folder: Path, *words: str, more: dict[str, str] | None = None) -> str:
    """Return what a git command prints; no hook of the repository is run.

    Raises:
        UsageError: git is not installed, fails, or does not end.
    """
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "-c", f"core.hooksPath={os.devnull}", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_S,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", **(more or {})},
        )
    except FileNotFoundError:
        raise UsageError(
            "git cannot be run: it is not installed, or the folder is not there.",
            fix="install git, or compare two report JSON files.",
        ) from None
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"git {words[0]} did not end within {LONGEST_S:g} s.",
            fix="compare two report JSON files.",
        ) from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise UsageError(f"git {words[0]} failed: {said}", fix="see `git status`.")
    return done.stdout
