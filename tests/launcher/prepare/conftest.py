"""A folder to launch from."""

from pathlib import Path

import pytest
from launchable import MODEL


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a model and a module of its own; it is now the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("import parts\n" + MODEL)
    (tmp_path / "parts.py").write_text("SIZE = 1\n")
    (tmp_path / "train.py").write_text("")
    return tmp_path
