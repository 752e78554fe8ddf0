"""What is printed where the encoding of a terminal lacks a sign: another sign, and no failure."""

from __future__ import annotations

import codecs
import io
import sys

HANDLER = "gpuplan.nearest"
NEAREST = {
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "-",
    "\N{MINUS SIGN}": "-",
    "\N{ALMOST EQUAL TO}": "~",
    "\N{LESS-THAN OR EQUAL TO}": "<=",
    "\N{GREATER-THAN OR EQUAL TO}": ">=",
    "\N{HORIZONTAL ELLIPSIS}": "...",
    "\N{RIGHTWARDS ARROW}": "->",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{MIDDLE DOT}": ",",
    "\N{CHECK MARK}": "+",
    "\N{BALLOT X}": "x",
    "\N{BLACK STAR}": "*",
    "\N{BLACK CIRCLE}": "o",
    "\N{LEFT SINGLE QUOTATION MARK}": "'",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
}
"""A sign by the one that stands for it. None is "?", which says that something is not known."""
BLOCKS = frozenset(map(chr, range(0x2580, 0x25A0)))
"""Unicode's block elements, of which bars are made."""
DRAWN = "#"
"""For one of them."""
OTHER = "_"


def print_in_any_encoding() -> None:
    """Let standard output and error write another sign where their encoding lacks one."""
    codecs.register_error(HANDLER, _nearest)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors=HANDLER)


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(map(_sign, lacking)), error.end


def _sign(one: str) -> str:
    return NEAREST.get(one, DRAWN if one in BLOCKS else OTHER)
