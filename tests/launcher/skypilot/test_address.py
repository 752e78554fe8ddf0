"""Which SkyPilot is asked: a stand-in for what SkyPilot 0.14 tells of itself."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpuplan.launcher.skypilot.address import address_here


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    modules: Any = {}
    for name in ("sky", "sky.server", "sky.server.common", "sky.utils", "sky.utils.common_utils"):
        modules[name] = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, modules[name])
    modules["sky.utils.common_utils"].get_user_hash = lambda: "5a5a5a5a"
    return modules["sky.server.common"]


def test_a_local_server_is_told_apart_by_its_folder(
    server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.get_server_url = lambda: "http://127.0.0.1:46580"
    monkeypatch.delenv("SKY_RUNTIME_DIR", raising=False)
    here = address_here()
    assert (here.server, here.home) == ("http://127.0.0.1:46580", str(Path.home()))
    assert here.user == "5a5a5a5a"
    monkeypatch.setenv("SKY_RUNTIME_DIR", str(tmp_path))
    assert address_here().home == str(tmp_path)


def test_a_password_of_a_server_is_not_kept(server: Any) -> None:
    server.get_server_url = lambda: "https://ann:canary@sky.example.com:8443/team"
    here = address_here()
    assert (here.server, here.home) == ("https://sky.example.com:8443/team", None)


def test_what_skypilot_does_not_tell_is_unknown(server: Any) -> None:
    assert address_here().server is None
