"""Tables of the planner on disk: of this code alone, bounded, and never a reason to fail."""

import errno
import os
import shutil
import sys
from pathlib import Path

import pytest

from gpuplan.api import tables_on_disk
from gpuplan.api.tables_on_disk import TablesOnDisk, code_of_tables, folder
from gpuplan.planner.search import search


def test_what_was_kept_is_found() -> None:
    tables = TablesOnDisk()
    assert tables.get("key") is None
    tables.put("key", b"content")
    assert tables.get("key") == b"content"
    assert tables.get("other") is None


def test_other_code_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tables_on_disk._PACKAGE
    for file in code_of_tables():
        copied = tmp_path / file.relative_to(package)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copied)
        os.utime(copied, (0, 0))
    here = tables_on_disk._code.__wrapped__()
    monkeypatch.setattr(tables_on_disk, "_PACKAGE", tmp_path)
    assert tables_on_disk._code.__wrapped__() == here
    for name in (
        "planner/memory/stages/stream.py",
        "planner/data/constants.toml",
        "catalog/data/accelerators.csv",
    ):
        with (tmp_path / name).open("a") as file:
            file.write("\n# changed\n")
        changed = tables_on_disk._code.__wrapped__()
        assert changed != here
        here = changed


def test_all_that_the_search_imports_is_its_code() -> None:
    assert search.__file__
    files = {
        Path(module.__file__)
        for name, module in sys.modules.items()
        if name.startswith(("gpuplan.planner", "gpuplan.profiles", "gpuplan.catalog"))
        and module.__file__
    }
    assert len(files) > 50
    assert files <= set(code_of_tables())


def test_the_tables_used_longest_ago_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_on_disk, "MAX_TABLES_BYTES", 250)
    tables = TablesOnDisk()
    for age_s, key in ((300, "old"), (200, "older by use"), (0, "new")):
        tables.put(key, bytes(100))
        entry = tables_on_disk._entry(key)
        used_s = entry.stat().st_mtime - age_s
        os.utime(entry, (used_s, used_s))
        if key == "older by use":
            assert tables.get("old"), "looking it up makes it the newest"
    assert [tables.get(key) is not None for key in ("old", "older by use", "new")] == [
        True,
        False,
        True,
    ]


def test_a_folder_that_cannot_be_written_changes_nothing(home_without_privileges: Path) -> None:
    home_without_privileges.chmod(0o555)
    tables = TablesOnDisk()
    tables.put("key", b"content")
    assert tables.get("key") is None


def test_a_full_disk_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    TablesOnDisk().put("key", b"content")
    assert list(folder().iterdir()) == []
