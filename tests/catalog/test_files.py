"""Files that are written whole or not at all."""

import errno
import os
import stat
from pathlib import Path

import pytest

from gpuplan.catalog.files import SCRATCH_SUFFIX, write_atomically


def names(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("content", ["first\nünd\n", b"\x00\xff\r\n"])
def test_what_was_there_is_replaced_and_nothing_else_is_left(
    tmp_path: Path, content: str | bytes
) -> None:
    path = tmp_path / "new" / "folder" / "file"
    write_atomically(path, "something longer than what follows")
    write_atomically(path, content)
    assert names(path.parent) == ["file"]
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)


def test_a_folder_is_made_only_where_that_is_asked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "gone" / "file", "text", make_folder=False)
    assert names(tmp_path) == []


@pytest.mark.parametrize(("umask", "mode", "got"), [(0o027, None, 0o640), (0o027, 0o644, 0o644)])
def test_permissions_are_those_asked_for_or_of_any_new_file(
    tmp_path: Path, require, umask: int, mode: int | None, got: int
) -> None:
    require("posix", "permissions")
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "file", "text", mode=mode)
    finally:
        os.umask(before)
    assert permissions(tmp_path / "file") == got


def test_a_private_file_is_private_before_it_has_content(
    tmp_path: Path, require, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("posix", "permissions")
    seen = []
    sync = os.fsync

    def look(descriptor: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    write_atomically(tmp_path / "file", "secret", mode=0o600)
    assert seen == [0o600]
    assert permissions(tmp_path / "file") == 0o600


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    scratch = []

    def fail(*_: object) -> None:
        scratch.extend(one for one in names(tmp_path) if one.endswith(SCRATCH_SUFFIX))
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        write_atomically(path, "new")
    assert len(scratch) == 1
    assert names(tmp_path) == ["file"]
    assert path.read_text() == "old"
