"""What other programs say, without what looks like a key, a token or a password in it."""

from __future__ import annotations

import re

from ..catalog.text.secrets import KEY_SHAPES, is_random

__all__ = ["KEY_SHAPES", "redacted"]

NAMED_SECRET = re.compile(
    r"(?i)((?:key|token|secret|password|passwd|credential|authorization)[\w-]*[\"']?\s*[:=]\s*)"
    r"(?:bearer\s+)?[\"']?[^\s\"',;]+"
)
IN_URL = re.compile(r"(://)[^/\s@]+@")
LONG_WORD = re.compile(r"[A-Za-z0-9+/=_-]{20,}")
REMOVED = "(removed)"


def redacted(text: str) -> str:
    """Return a text without what looks like a key, a token or a password.

    >>> redacted("bad key AKIAABCDEFGHIJKLMNOP, token=abc, https://me:pw@host/")
    'bad key (removed), token=(removed), https://(removed)@host/'
    """
    text = KEY_SHAPES.sub(REMOVED, text)
    text = IN_URL.sub(rf"\1{REMOVED}@", text)
    text = NAMED_SECRET.sub(rf"\1{REMOVED}", text)
    return LONG_WORD.sub(lambda word: REMOVED if is_random(word[0]) else word[0], text)
