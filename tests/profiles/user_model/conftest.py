"""Fixtures of tests that load model files of users."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def clean_imports(tmp_path: Path) -> Iterator[None]:
    """Forget what a user's file imported, and the folders that it was imported from."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or ".").is_relative_to(tmp_path):
            del sys.modules[name]
