"""What an answer says where a Profile lacks the trace of 16-bit layers."""

from __future__ import annotations

import re

FAILS = "FSDP's mixed precision would fail"
"""Begins the note of a Profile whose step runs under autocast, but not in 16-bit layers."""
AUTOCAST_FAILS = "Autocast would fail"
"""Begins the note of a Profile whose step runs as it was written, but not under autocast."""
FSDP_CASTS = "Layers in bf16 would fail without FSDP"
"""Begins the note of a Profile whose step runs in 16-bit layers where FSDP casts its inputs."""
KNOWN = FAILS, AUTOCAST_FAILS, FSDP_CASTS
"""Beginnings of the notes that say why numerics are missing."""
NEVER_TRACED = (
    "mixed precision under FSDP, ZeRO-2, Megatron, XLA or offload runs 16-bit layers, which this"
    " profile was made without, so such plans were left out: profile the model file itself"
)
_PLACE = re.compile(r"\S+:\d+")


def fails_in_sixteen_bit_layers(message: str) -> str:
    """Return the note for a step that failed so; `message` begins with the user's line, if any."""
    return (
        f"{FAILS}{_where(message)}; plans with 16-bit layers (FSDP, ZeRO-2, bf16) were left out,"
        " those under autocast stay"
    )


def fails_without_fsdp(message: str) -> str:
    """Return the note for a step that failed so; `message` begins with the user's line, if any."""
    return (
        f"{FSDP_CASTS}{_where(message)}; plans in bf16 without fp32 weights were left out; FSDP's"
        " mixed precision casts what enters the model"
    )


def fails_under_autocast(message: str) -> str:
    """Return the note for a step that failed so; `message` begins with the user's line, if any."""
    return (
        f"{AUTOCAST_FAILS}{_where(message)}; plans in mixed precision were left out, those in fp32"
        " stay"
    )


def _where(message: str) -> str:
    what = message.splitlines()[0]
    return f" at {what}" if _PLACE.match(what) else f": {what}"
