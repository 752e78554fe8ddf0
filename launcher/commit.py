"""Which commit of the user's own repository a run was started from. Standard library only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

TIMEOUT_S = 10.0
CHANGED = "+changes"
"""Behind the commit of a folder whose files differ from it."""


def commit_of(path: Path) -> str | None:
    """Return the commit of the repository that a file lies in, with `+changes` if it has any.

    Files that git does not know count as none. None where there is no repository or no git.
    """
    found = _git(path.parent, "rev-parse", "--verify", "HEAD^{commit}")
    if found is None:
        return None
    changes = _git(path.parent, "status", "--porcelain", "--untracked-files=no")
    return found + (CHANGED if changes else "")


def _git(folder: Path, *words: str) -> str | None:
    """Return what git says; None where it fails. Nothing that a repository configures is run."""
    settings = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *settings, *words],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
