"""Fixtures of the profiles tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuplan import examples


@pytest.fixture
def example_workload() -> Callable[..., Any]:
    """Return a function that loads an example by name, with params."""
    from gpuplan.profiles.user_model.contract import load_workload
    from gpuplan.profiles.user_model.spec import ModelSpec

    folder = Path(examples.__path__[0])

    def load(name: str, **params: Any) -> Any:
        path = folder / f"{name}.py"
        return load_workload(ModelSpec(text=str(path), kind="file", path=path, params=params))

    return load
