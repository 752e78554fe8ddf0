"""How many samples a file evaluates on, counted in a child process that builds the data set."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from ...catalog.errors import GpuplanError
from ..tracing_process.child import Child
from ..user_model.spec import ModelSpec

LIMIT_S = 60.0
"""A data set that takes longer to open is not waited for: its size can be given."""


@dataclass(frozen=True)
class EvalSamples:
    """How many samples an evaluation has, or why that is not known here."""

    count: int | None
    why_not: str | None = None
    """A clause, such as "net.py has no build_eval_dataset()"."""


def count_eval_samples(spec: ModelSpec) -> EvalSamples:
    """Return the length of what a file's `build_eval_dataset()` returns, as it is on this machine.

    A file that fails here may be right where its data are, so that no error is raised.
    """
    if spec.kind == "profile":
        return EvalSamples(None, f"{spec.name} is a finished profile")
    child = Child(
        replace(spec, timeout_s=min(spec.timeout_s, LIMIT_S)),
        main=f"{__package__}.eval_samples_main",
    )
    try:
        return EvalSamples(**json.loads(child.result()["profile"]))
    except GpuplanError as error:
        # The message of a file's own failure may be long, and its fix is not asked for.
        return EvalSamples(None, f"it failed here ({' '.join(str(error.message).split())[:200]})")
    finally:
        child.kill()
