"""How a model is trained beside its plan: what a user may ask of `run` and `launch` alike."""

from __future__ import annotations

from dataclasses import dataclass

STOP, REWIND = "stop", "rewind"
ON_NAN = (STOP, REWIND)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """What is asked of training, the same here and on rented machines."""

    on_nan: str = STOP
    """`rewind` goes back to the newest checkpoint when the loss or a weight is no finite number,
    and leaves out the samples since; `stop` ends the run."""
