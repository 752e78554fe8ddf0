"""What other programs say, without what looks like a key, a token or a password in it."""

from __future__ import annotations

import re

KEY_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA|AIza)[A-Za-z0-9_-]{12,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
)
"""How the keys of well-known services begin."""
NAMED_SECRET = re.compile(
    r"(?i)((?:key|token|secret|password|passwd|credential|authorization)[\w-]*[\"']?\s*[:=]\s*)"
    r"(?:bearer\s+)?[\"']?[^\s\"',;]+"
)
IN_URL = re.compile(r"(://)[^/\s@]+@")
LONG_WORD = re.compile(r"[A-Za-z0-9+/=_-]{20,}")
LONGEST_NAME = 32
"""Characters; a longer word without a hyphen or an underscore is no name."""
REMOVED = "(removed)"


def redacted(text: str) -> str:
    """Return a text without what looks like a key, a token or a password.

    >>> redacted("bad key AKIAABCDEFGHIJKLMNOP, token=abc, https://me:pw@host/")
    'bad key (removed), token=(removed), https://(removed)@host/'
    """
    text = KEY_SHAPES.sub(REMOVED, text)
    text = IN_URL.sub(rf"\1{REMOVED}@", text)
    text = NAMED_SECRET.sub(rf"\1{REMOVED}", text)
    return LONG_WORD.sub(lambda word: REMOVED if _is_random(word[0]) else word[0], text)


def _is_random(word: str) -> bool:
    """Whether a long word mixes letters and digits as keys do and names do not."""
    has_digit = any(letter.isdigit() for letter in word)
    if len(word) >= LONGEST_NAME and word.isalnum() and has_digit:
        return True
    return (
        has_digit
        and any(letter.isupper() for letter in word)
        and any(letter.islower() for letter in word)
    )
