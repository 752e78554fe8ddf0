"""Shared fixtures: every test gets its own gpuplan home, so none sees the person's real data."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def gpuplan_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point the data, cache and config folders at an empty temporary folder."""
    home = tmp_path_factory.mktemp("gpuplan-home")
    monkeypatch.setenv("GPUPLAN_HOME", str(home))
    for name in ("GPUPLAN_OFFERS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return home


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`, which rewrites the golden files instead of comparing with them."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files")
