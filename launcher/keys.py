"""Files that hold keys by their usual names: they stay here, whatever else a launch sends."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

KEY_FILES = (
    *(".env", ".env.*", ".envrc", ".netrc", "_netrc", ".pypirc", ".git-credentials"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*-key.json"),
    "application_default_credentials.json",
    *(".aws/credentials", ".huggingface/token", ".kaggle/kaggle.json"),
)
"""Patterns of the end of a path. A JSON file that says of itself that it is the key of a service
account stays here under any name."""
KEY_FOLDER = ".ssh"
NO_KEYS = (".env.example", ".env.sample", ".env.template", ".env.dist")
SERVICE_ACCOUNT = "service_account"
LARGEST_KEY_BYTES = 16_384
"""A key of a service account has 2.3 kB; larger files are not read."""


def holds_keys(file: Path, path: PurePosixPath) -> bool:
    """Return whether a file, or a link, is one of those that hold keys.

    Args:
        file: it, on this disk.
        path: it, from the folder that is sent.
    """
    if path.name in NO_KEYS:
        return False
    # The folder that is sent may be named so itself.
    whole = PurePosixPath(file.parent.name, path.name)
    if KEY_FOLDER in path.parts:
        return True
    if any(path.match(one) or whole.match(one) for one in KEY_FILES):
        return True
    return path.suffix == ".json" and _is_service_account(file)


def _is_service_account(file: Path) -> bool:
    try:
        if file.stat().st_size > LARGEST_KEY_BYTES:
            return False
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return (
        isinstance(values, dict)
        and values.get("type") == SERVICE_ACCOUNT
        and "private_key" in values
    )
