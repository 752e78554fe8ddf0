"""Names of owners and projects that are written in several ways."""

from __future__ import annotations

import re


def is_same_name(one: str, other: str) -> bool:
    """Whether two names are of one owner, or one project: `Team A` is `team-a`.

    >>> is_same_name("Team A", "team-a"), is_same_name("研究", "训练")
    (True, False)
    """
    return _folded(one) == _folded(other)


def _folded(name: str) -> str:
    return re.sub(r"[\W_]+", "-", name.casefold()).strip("-") or name
