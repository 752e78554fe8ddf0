"""How large a model is, counted in a child process that builds it without memory."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

from ...catalog.bounded_folder import drop_oldest
from ...catalog.errors import GpuplanError
from ...catalog.files import write_atomically
from ...catalog.paths import cache_dir
from ..user_model.spec import ModelSpec
from .cache import content_key
from .child import Child

LIMIT_S = 20.0
"""What takes longer loads weights or data; nobody is to wait for that twice."""
MAX_REMEMBERED_BYTES = 10**4
"""Of all sizes, a dozen bytes each."""


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
        size = ModelSize(**json.loads(child.result()["profile"]))
    except GpuplanError:
        return None  # The run itself says what is wrong with the file, if anything is.
    _remember(spec, size)
    return size


def remembered_bytes(spec: ModelSpec) -> int | None:
    """Return what a copy of a model took in training when it was counted last; None: never.

    It may differ by now, as files that the model imports are not looked at.
    """
    file = _file(spec)
    try:
        return None if file is None else int(file.read_text())
    except (OSError, ValueError):
        return None


def _remember(spec: ModelSpec, size: ModelSize) -> None:
    file = _file(spec)
    if file is not None:
        with contextlib.suppress(OSError):  # It is counted again, then.
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, f"{size.trained_bytes}\n")
            drop_oldest(file, MAX_REMEMBERED_BYTES)


def _file(spec: ModelSpec) -> Path | None:
    key = content_key(spec, numerics=None, optimizer=None)
    return None if key is None else cache_dir() / "model-sizes" / key
