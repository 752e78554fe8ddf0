"""How large a model is, counted in a child process that builds it without memory."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from ...catalog.errors import GpuplanError
from ..user_model.spec import ModelSpec
from .child import Child

LIMIT_S = 20.0
"""What takes longer loads weights or data; nobody is to wait for that twice."""


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """Bytes of a model in training, whole."""

    built_bytes: int
    """Parameters as build_model() returns them."""
    weight_bytes: int
    """Parameters as they are trained."""
    gradient_bytes: int
    """0 where the optimizer takes each gradient as soon as it is there."""
    optimizer_bytes: int
    """State of the optimizer after a step; 0 where it is not known."""

    @property
    def trained_bytes(self) -> int:
        """Return what one whole copy takes in every step; activations come on top."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes


def count_model_size(
    spec: ModelSpec, *, precision: str | None, frozen_precision: str | None
) -> ModelSize | None:
    """Return the size of a model; None where it cannot be built without values, or not soon.

    Args:
        spec: the model.
        precision: of the plan; None leaves it to the file.
        frozen_precision: of the plan, for parameters that are not trained.
    """
    child = Child(
        replace(spec, timeout_s=min(spec.timeout_s, LIMIT_S)),
        main=f"{__package__}.model_size_main",
        more={"count": {"precision": precision, "frozen_precision": frozen_precision}},
    )
    try:
        return ModelSize(**json.loads(child.result()["profile"]))
    except GpuplanError:
        return None  # The run itself says what is wrong with the file, if anything is.
