"""Names of owners and projects that are written in several ways."""

from __future__ import annotations

import unicodedata


def is_same_name(one: str, other: str) -> bool:
    """Return whether two names are of one owner, or of one project: `Team A` is `team-a`.

    Case and what stands between words do not tell names apart, as in labels. Letters that labels
    have no room for do: two names in another script have the same label, and are two names.

    >>> is_same_name("Team A", "team-a"), is_same_name("研究", "训练")
    (True, False)
    """
    return _words(one) == _words(other)


def _words(name: str) -> str | list[str]:
    plain = unicodedata.normalize("NFKC", name).casefold()
    # Letters, the marks on them, and digits; all else stands between words.
    kept = (one if unicodedata.category(one)[0] in "LMN" else " " for one in plain)
    return "".join(kept).split() or name
