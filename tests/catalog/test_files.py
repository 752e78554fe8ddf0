"""Files that are written whole or not at all."""

import contextlib
import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gpuplan.catalog.files import (
    SCRATCH_SUFFIX,
    make_private,
    narrow,
    write_atomically,
    write_chosen,
)

NOBODY = 65534
"""The user id that owns nothing."""


def names(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, 0o700),
        (0o755, 0o700),
        (0o777, 0o770),
        (0o770, 0o770),
        (0o2775, 0o2770),
        (0o500, 0o500),
    ],
)
def test_a_private_folder_is_its_owners_and_a_teams_stays_the_teams(
    before: int | None, after: int, tmp_path: Path, require
) -> None:
    require("posix", "permissions are those of POSIX")
    folder = tmp_path / "own"
    if before is not None:
        folder.mkdir()
        folder.chmod(before)
    make_private(folder)
    assert permissions(folder) == after


@pytest.mark.parametrize(
    ("of_folder", "before", "after"),
    [(0o755, 0o644, 0o600), (0o775, 0o664, 0o660), (0o700, 0o600, 0o600)],
)
def test_a_file_is_narrowed_as_its_folder_has_it(
    of_folder: int, before: int, after: int, tmp_path: Path, require
) -> None:
    require("posix", "permissions are those of POSIX")
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder" / "store.sqlite"
    file.write_text("")
    file.chmod(before)
    (tmp_path / "folder").chmod(of_folder)
    narrow(file)
    assert permissions(file) == after
    narrow(tmp_path / "nowhere")


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

    def observe(descriptor: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", observe)
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


def test_a_chosen_file_keeps_its_permissions_and_a_new_one_is_readable(
    tmp_path: Path, require
) -> None:
    require("posix", "permissions")
    private = tmp_path / "private"
    private.write_text("old, and longer than what follows")
    private.chmod(0o600)
    write_chosen(private, "new")
    write_chosen(tmp_path / "fresh", "new")
    assert (private.read_text(), permissions(private)) == ("new", 0o600)
    assert permissions(tmp_path / "fresh") == 0o644
    assert sorted(names(tmp_path)) == ["fresh", "private"]


def test_a_chosen_file_keeps_its_owner(tmp_path: Path, require) -> None:
    require("root", "a file of somebody else")
    path = tmp_path / "theirs"
    path.write_text("old")
    os.chown(path, NOBODY, NOBODY)
    write_chosen(path, "new")
    assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY, NOBODY)


@pytest.mark.parametrize("there", [True, False])
def test_what_a_link_points_to_is_written_and_the_link_stays(
    tmp_path: Path, require, there: bool
) -> None:
    require("symlinks", "links")
    folder = tmp_path / "results"
    folder.mkdir()
    target, link = folder / "plans.json", tmp_path / "newest.json"
    if there:
        target.write_text("old")
    link.symlink_to("results/plans.json")
    write_chosen(link, "new")
    assert os.readlink(link) == "results/plans.json"
    assert target.read_text() == "new"
    assert names(folder) == ["plans.json"]


def test_a_link_that_points_to_itself_is_an_error(tmp_path: Path, require) -> None:
    require("symlinks", "links")
    link = tmp_path / "link"
    link.symlink_to("link")
    with pytest.raises(OSError, match="link"):
        write_chosen(link, "new")
    assert link.is_symlink()


def test_a_pipe_is_written_into(tmp_path: Path, require) -> None:
    require("posix", "named pipes")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_chosen(pipe, "größer\n")
        assert os.read(reader, 100) == "größer\n".encode()
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert names(tmp_path) == ["pipe"]


def test_a_device_is_written_into(tmp_path: Path, require) -> None:
    require("root", "a device of the test's own")
    device = tmp_path / "null"
    os.mknod(device, 0o666 | stat.S_IFCHR, os.stat(os.devnull).st_rdev)
    link = tmp_path / "link"
    link.symlink_to(device)
    for path in (device, link):
        # A file system that is mounted without devices opens none; it must stay all the same.
        with contextlib.suppress(PermissionError):
            write_chosen(path, "gone")
        assert stat.S_ISCHR(path.stat().st_mode)
    assert link.is_symlink()


def test_standard_output_by_its_path_is_appended_to(tmp_path: Path, require) -> None:
    require("linux", "/dev/stdout")
    code = (
        "from pathlib import Path; from gpuplan.catalog.files import write_chosen;"
        " import sys; write_chosen(Path(sys.argv[1]), 'new\\n')"
    )
    # Through a link of the test's own, so that a failure replaces that and no device.
    link = tmp_path / "stdout"
    link.symlink_to("/proc/self/fd/1")
    line = [sys.executable, "-c", code, str(link)]
    assert subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout == b"new\n"
    log = tmp_path / "log"
    log.write_text("old\n")
    before = log.stat().st_ino
    with log.open("a") as stream:
        subprocess.run(line, stdout=stream, check=True)
    assert (log.read_text(), log.stat().st_ino) == ("old\nnew\n", before)
    assert link.is_symlink()
