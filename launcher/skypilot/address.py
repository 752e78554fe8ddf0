"""Which SkyPilot is asked from here: its server, the folder of its state, and its user."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ..store.launch_record import EngineAddress

LOOPBACK = ("127.0.0.1", "localhost", "::1", "0.0.0.0")  # noqa: S104 - compared, not bound


def address_here() -> EngineAddress:
    """Return which SkyPilot this process asks; a part that SkyPilot does not tell is None."""
    server = _told("sky.server.common", "get_server_url")
    parts = None if server is None else urlsplit(server)
    is_local = parts is not None and parts.hostname in LOOPBACK
    return EngineAddress(
        server=None
        if parts is None
        else urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")),
        home=_state_folder() if is_local else None,
        user=_told("sky.utils.common_utils", "get_user_hash"),
    )


def _state_folder() -> str:
    """Return below which folder SkyPilot 0.14 keeps `.sky` (sky/utils/common_utils.py)."""
    named = os.environ.get("SKY_RUNTIME_DIR")
    return str((Path(named).expanduser() if named else Path.home()).absolute())


def _told(module: str, function: str) -> str | None:
    try:
        found: Any = import_module(module)
        return str(getattr(found, function)())
    except (ImportError, AttributeError, OSError, ValueError):
        return None
