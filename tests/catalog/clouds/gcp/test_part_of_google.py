"""A part of Google's libraries, which other packages bring: MLflow installs google-auth alone."""

from importlib import import_module
from types import ModuleType

import pytest

from gpuplan.catalog.clouds.connect import connect
from gpuplan.catalog.clouds.gcp import client
from gpuplan.catalog.clouds.interface import CloudError


def test_google_auth_alone_is_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_auth(name: str) -> ModuleType:
        if name == "google.auth":
            return ModuleType(name)
        if name.startswith("google."):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return import_module(name)

    monkeypatch.setattr(client, "import_module", only_auth)
    found = connect("gcp")
    assert isinstance(found, CloudError)
    assert "google.api_core" in found.reason and "gpuplan[gcp]" in (found.fix or "")
