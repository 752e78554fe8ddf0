"""What a plan makes of a loss that is a sum over its samples, said before its steps are paid for.

The runner says it before its first step, in the log of machines that are rented then. Where the
text of the file adds anything up, a child process asks the same here.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ...catalog.errors import GpuplanError
from ...planner.plan.plan import Plan
from ...profiles.tracing_process.child import Child
from ...profiles.user_model.file_text import local_files
from ...profiles.user_model.spec import ModelSpec

LIMIT_S = 30.0
"""What takes longer is left to the runner: a launch is not to wait for it."""
MOST_PARAMETERS = 100e6
"""Of a model that is built here, with its weights, to run a handful of samples."""
SUMS = re.compile(r"""\.sum\(|reduction\s*=\s*["']sum["']|\bsum\(""")


def loss_notes(spec: ModelSpec, plan: Plan, parameters: int | None) -> tuple[str, ...]:
    """Return what becomes of the loss of a file under a plan; nothing where all is as it should be.

    Args:
        spec: the model.
        plan: that is launched.
        parameters: of the model; None where they are not known.
    """
    if spec.kind != "file" or parameters is None or parameters > MOST_PARAMETERS:
        return ()
    if not _adds_up(spec):
        return ()
    child = Child(
        replace(spec, timeout_s=min(spec.timeout_s, LIMIT_S)),
        main=f"{__package__}.loss_seen_main",
        more={"plan": plan.model_dump(mode="json")},
    )
    try:
        return tuple(child.result()["words"])
    except GpuplanError:
        return ()  # The run itself says what is wrong with the file, if anything is.


def _adds_up(spec: ModelSpec) -> bool:
    """Return whether the text of a file, or of one beside it that it imports, has a sum."""
    try:
        return any(SUMS.search(path.read_text(encoding="utf-8")) for path in local_files(spec.path))
    except (OSError, ValueError):
        return False
