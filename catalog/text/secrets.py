"""How keys, tokens and passwords look, so that none is printed. Standard library only."""

from __future__ import annotations

import re

KEY_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA|AIza)[A-Za-z0-9_-]{12,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
)
"""How the keys of well-known services begin."""
SECRET_NAME = re.compile(r"(?i)key|token|secret|password|passwd|credential|authorization")
"""Names under which people keep what nobody else may see."""
LONGEST_NAME = 32
"""Characters; a longer word without a hyphen or an underscore is no name."""
SHORTEST_RANDOM = 20
"""Characters; shorter words that mix letters and digits are names of machines: ND96isr."""
BREAKS = re.compile(r"[\s._:,;-]+")
"""What the parts of a name stand between; a random key has long parts, or none of these."""


def is_random(word: str) -> bool:
    """Whether a long word mixes letters and digits as keys do and names do not."""
    has_digit = any(letter.isdigit() for letter in word)
    if len(word) >= LONGEST_NAME and word.isalnum() and has_digit:
        return True
    return (
        has_digit
        and any(letter.isupper() for letter in word)
        and any(letter.islower() for letter in word)
    )


def looks_secret(text: str) -> bool:
    """Whether a value looks like a key or a token; names of instance types do not.

    >>> [looks_secret(text) for text in ("AKIAABCDEFGHIJKLMNOP", "Standard_ND96isr_H100_v5")]
    [True, False]
    """
    if KEY_SHAPES.search(text):
        return True
    parts = BREAKS.split(text)
    return any(len(part) >= SHORTEST_RANDOM and is_random(part) for part in parts)
