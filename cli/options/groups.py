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
    assume_true: tuple[str, ...]
    """Lines whose condition is true, as typed: `model.py:12`."""
    assume_false: tuple[str, ...]
    assume_size: tuple[str, ...]
    """As typed: `model.py:31=50%`."""
    timeout: float
    """Seconds."""
    no_cache: bool
    verbose: bool

    @property
    def assumed(self) -> dict[str, bool | int | str]:
        """Return what is assumed at each line, as the use cases take it."""
        from ...profiles.user_model.assumptions import assumed_by_options

        return assumed_by_options(self.assume_true, self.assume_false, self.assume_size)
