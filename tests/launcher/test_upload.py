"""What a launch sends to its nodes: measured, and nothing beside it."""

import os
import shutil
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from gpuplan.launcher.upload import (
    CODE_FOLDER,
    SKYIGNORE,
    gather,
    keep_source,
    measure,
)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Return a folder of code with what lies beside code."""
    root = tmp_path / "net"
    for name in ("net.py", "parts/block.py", "data/train.bin", "data/README", ".env", "sub/.env"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x" * len(name))
    for name in (
        ".git/HEAD",
        "__pycache__/net.cpython-311.pyc",
        "parts/__pycache__/block.cpython-311.pyc",
        "gpuplan-runs/net/job/run.json",
        "sub/gpuplan-launches/a/job-1.log",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("own")
    return root


def sent(root: Path, *always: str) -> set[str]:
    return {one.path for one in measure(root, [PurePosixPath(one) for one in always]).files}


ALL = {"net.py", "parts/block.py", "data/train.bin", "data/README"}


def test_history_keys_and_what_gpuplan_wrote_never_travel(code: Path) -> None:
    assert sent(code) == ALL


def test_the_store_never_travels_where_it_is_inside(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPLAN_HOME", str(code / "mine"))
    for name in (
        "data/gpuplan.sqlite3",
        "cache/profiles/a.profile",
        "config/config.toml",
        "own.py",
    ):
        (code / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (code / "mine" / name).touch()
    assert sent(code) == {*ALL, "mine/own.py"}


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ("data/\n", {"data/train.bin", "data/README"}),
        ("/data\n", {"data/train.bin", "data/README"}),
        ("# data\n\n*.bin\n", {"data/train.bin"}),
        ("parts/*.py", {"parts/block.py"}),
    ],
)
def test_a_skyignore_leaves_files_here(code: Path, lines: str, left: set[str]) -> None:
    (code / SKYIGNORE).write_text(lines)
    assert sent(code) == ALL - left


@pytest.mark.parametrize("is_repository", [True, False])
def test_git_leaves_files_here_with_and_without_a_repository(
    code: Path, is_repository: bool
) -> None:
    shutil.rmtree(code / ".git")
    if is_repository:
        subprocess.run(["git", "init", "--quiet", str(code)], check=True)
    (code / ".gitignore").write_text("*.bin\n!parts\n")
    assert sent(code) == ALL - {"data/train.bin"} | {".gitignore"}


def test_a_folder_that_git_ignores_as_a_whole_is_sent(code: Path, tmp_path: Path) -> None:
    shutil.rmtree(code / ".git")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("net\n")
    assert sent(code) == ALL


def test_what_the_job_needs_travels_whatever_leaves_it_out(code: Path) -> None:
    (code / SKYIGNORE).write_text("data\nnet.py\n")
    (code / "gpuplan-runs/net/weights-step-4").mkdir()
    (code / "gpuplan-runs/net/weights-step-4/model.safetensors").write_text("w")
    weights = "gpuplan-runs/net/weights-step-4"
    assert sent(code, "net.py", weights) == {
        "net.py",
        "parts/block.py",
        f"{weights}/model.safetensors",
    }
    assert sent(code, "data") == ALL - {"net.py"}


def test_the_sum_and_the_largest_are_said(code: Path) -> None:
    for size in range(1, 8):
        (code / f"{size}.bin").write_bytes(b"x" * 1000 * size)
    upload = measure(code)
    assert upload.size_bytes == 28_000 + sum(map(len, ALL))
    assert [one.path for one in upload.largest] == [f"{size}.bin" for size in (7, 6, 5, 4, 3)]


def test_what_is_gathered_is_what_was_measured(code: Path, tmp_path: Path, require) -> None:
    require("symlinks", "a link is put there as a link")
    (code / "link").symlink_to("parts")
    (code / SKYIGNORE).write_text("data\n")
    launch = tmp_path / "launch"
    launch.mkdir()
    keep_source(launch, code, [])
    for _ in range(2):
        gather(launch)
        found = {
            str(path.relative_to(launch / CODE_FOLDER))
            for path in (launch / CODE_FOLDER).rglob("*")
            if path.is_symlink() or path.is_file()
        }
        assert found == sent(code) | {SKYIGNORE}
    assert os.readlink(launch / CODE_FOLDER / "link") == "parts"
    # SkyPilot leaves nothing out of it by rules of its own.
    assert not [
        line
        for line in (launch / CODE_FOLDER / SKYIGNORE).read_text().splitlines()
        if not line.startswith("#")
    ]
    (code / "net.py").unlink()
    (code / "new.py").write_text("print(1)")
    gather(launch)
    assert (launch / CODE_FOLDER / "new.py").read_text() == "print(1)"
    assert not (launch / CODE_FOLDER / "net.py").exists()


def test_a_folder_that_is_gone_leaves_what_was_sent_before(code: Path, tmp_path: Path) -> None:
    launch = tmp_path / "launch"
    launch.mkdir()
    gather(launch)
    assert not (launch / CODE_FOLDER).exists()
    keep_source(launch, code, [])
    gather(launch)
    shutil.rmtree(code)
    gather(launch)
    assert (launch / CODE_FOLDER / "net.py").is_file()


KEYS = (
    *(".env.local", ".env.production", ".envrc", ".netrc", "id_rsa", ".ssh/id_ed25519"),
    *(".ssh/cluster/key", ".aws/credentials", "deploy/sa-key.json", ".huggingface/token"),
)
NO_KEYS = (".env.example", "sub/.env.sample", ".aws/config", "id_rsa.pub", "tokens.json")


def test_keys_stay_here_and_are_named(code: Path) -> None:
    for name in (*KEYS, *NO_KEYS, "account.json"):
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text("{}")
    (code / "account.json").write_text('{"type": "service_account", "private_key": "x"}')
    upload = measure(code)
    assert {one.path for one in upload.files} == {*ALL, *NO_KEYS}
    assert set(upload.kept_back) == {*KEYS, "account.json"}
    assert upload.notes == (
        ".aws/credentials, .env.local, .env.production, .envrc, .huggingface/token and 6 more are"
        " not sent, as they hold by name or content keys: pass a job what it needs with --secret"
        " NAME",
    )
    (code / SKYIGNORE).write_text(".env.*\n")
    assert ".env.local" not in measure(code).kept_back, "the user left it out"
    assert sent(code, ".env.local") == {*ALL, *NO_KEYS, ".env.local"} - {
        ".env.example",
        "sub/.env.sample",
    }


def test_links_that_lead_out_are_named(code: Path, tmp_path: Path, require) -> None:
    require("symlinks", "links are what is looked at")
    (tmp_path / "big").mkdir()
    (code / "more").symlink_to(tmp_path / "big")
    (code / "inside").symlink_to("parts")
    (code / "token").symlink_to("parts/block.py")
    upload = measure(code)
    assert upload.dangling == ("more",)
    assert upload.notes == (
        f"more is sent as a link out of {code}, with nothing behind it on a node: put data in a"
        " bucket with --data, and code into the folder",
    )
