"""What the shared options hold once they are parsed: parts of each command's frozen options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """What `output_options` adds to a command."""

    form: str | None
    """How to print; None: what the name of the file says, else the first format."""
    out_file: str | None
    quiet: bool


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What `model_options` adds to a command, beside the model itself."""

    params: tuple[str, ...]
    """As typed: `key=value`."""
    lora: str | None
    """Adapters, as typed: `r=16,targets=q_proj+v_proj`."""
    inputs: tuple[str, ...]
    timeout: float
    """Seconds."""
    no_cache: bool
    verbose: bool
