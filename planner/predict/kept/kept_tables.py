"""Arrays that take long to compute and no device or price changes, kept from search to search.

The planner itself reads and writes nothing: whoever asks hands it something that does.
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from ....profiles.profile import Profile


class KeptTables(Protocol):
    """Bytes by key; an entry may be gone at any time, and is never another version's."""

    def get(self, key: str) -> bytes | None:
        """Return what was kept under a key; None if there is nothing."""
        ...

    def put(self, key: str, content: bytes) -> None:
        """Keep something under a key, if possible."""
        ...


def kept_array(
    kept: KeptTables | None,
    made_from: Callable[[], Mapping[str, object]],
    size: int,
    make: Callable[[], np.ndarray],
) -> np.ndarray:
    """Return the flat array of 64-bit floats that `make` returns, or returned for the same facts.

    Args:
        kept: where it may be found, and is kept; None for nowhere.
        made_from: returns everything it follows from but the code, as JSON can hold it.
        size: its entries; what is kept and has another number of them is not used.
        make: computes it.
    """
    if kept is None:
        return make()
    text = json.dumps(made_from(), sort_keys=True, default=str)
    key = hashlib.sha256(text.encode()).hexdigest()[:32]
    found = _read(kept.get(key), size)
    if found is None:
        found = make()
        kept.put(key, _written(found))
    return found


def profile_digest(profile: Profile) -> str:
    """Return what is equal for equal Profiles."""
    return hashlib.sha256(profile.model_dump_json().encode()).hexdigest()


def _written(array: np.ndarray) -> bytes:
    """Return an array as compressed bytes with a checksum (zlib's)."""
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return zlib.compress(content.getvalue(), level=1)


def _read(content: bytes | None, size: int) -> np.ndarray | None:
    """Return the array of these bytes; None where they are no such array."""
    if content is None:
        return None
    try:
        found = np.load(io.BytesIO(zlib.decompress(content)), allow_pickle=False)
    except (zlib.error, ValueError, EOFError, OSError):
        return None
    return found if found.shape == (size,) and found.dtype == np.float64 else None
