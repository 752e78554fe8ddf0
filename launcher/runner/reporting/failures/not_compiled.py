"""A model that torch.compile does not compile: often the machine's lack, not the file's."""

from __future__ import annotations

import sys

from .....catalog.errors import GpuplanError
from ...job import Job

COMPILER = "torch._inductor."
"""What torch._dynamo raises may be a fault of the model, found while its shapes are traced."""
LONGEST = 400
"""Characters of what the compiler said: a command line of g++ alone has thousands."""


class NotCompiledError(GpuplanError):
    """torch.compile failed."""


def not_compiled(job: Job, error: BaseException) -> NotCompiledError | None:
    """Return the error for the user, if torch's compiler raised it and not the model."""
    if not any(one.__module__.startswith(COMPILER) for one in type(error).__mro__):
        return None
    said = " ".join(str(error).split())
    shown = said if len(said) <= LONGEST else said[:LONGEST] + " …"
    is_planned = job.execution is not None and job.execution.compile
    without = (
        "take a plan of `gpuplan estimate --no-compile`"
        if is_planned
        else "leave torch.compile out of the file"
    )
    lacks = "; for processors it needs a C++ compiler (g++)"
    if " " in sys.prefix:
        lacks += f" and a path of Python without spaces (here {sys.prefix})"
    return NotCompiledError(
        f"torch.compile could not compile {job.spec.path.name}: {type(error).__name__}: {shown}",
        fix=f"{without}{lacks}. All that it said is in traceback.txt beside the results.",
    )
