"""What a model says of splitting its layers over devices. Standard library and torch only.

Hugging Face models carry a plan (`tp_plan`); any other file may define `tensor_parallel_plan()`,
which returns module names → how each is split (docs/running.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from ....catalog.errors import UserFileError
from ....catalog.vocabulary import TensorPlan
from ..checks import described
from ..workload import Workload, optional_function

PLAN_FUNCTION = "tensor_parallel_plan"


def tensor_plan_of(workload: Workload, model: nn.Module) -> dict[str, Any]:
    """Return the tensor-parallel plan of a model: the file's own, else its class's; {} if none.

    Raises:
        UserFileError: the file's function returns no dictionary.
    """
    function = optional_function(workload, PLAN_FUNCTION)
    if function is None:
        found = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None)
        return dict(found) if isinstance(found, Mapping) else {}
    plan = function()
    if isinstance(plan, Mapping):
        return dict(plan)
    raise UserFileError(
        f"{PLAN_FUNCTION}() returned {described(plan)}, not a dictionary.",
        fix='return module names and how each is split, such as {"blocks.*.up": "colwise"}.',
    )


def tensor_plan_kind(plan: Mapping[str, Any]) -> TensorPlan:
    """Return what a tensor-parallel plan can do."""
    if not plan:
        return "none"
    return "sequence" if any(word == "sequence" for word in plan.values()) else "tensor"
