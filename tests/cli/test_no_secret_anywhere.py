"""No command prints, logs or writes a key that the user has in the environment or at home."""

import json
import logging
import socket
from pathlib import Path

import pytest
from every_command import LONGEST_S, MODEL, every_command, interrupted_after, words_of

from gpuplan.cli.main import run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_trace_processes")]

KEYS = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET"),
    *("HF_TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD", "RUNPOD_API_KEY", "VAST_API_KEY"),
    *("LAMBDA_API_KEY", "NEBIUS_IAM_TOKEN", "GITHUB_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN"),
)
HERE = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "", None)
CANARY = "canary0secret"
SERVED_S = 3.0
COMMANDS = every_command()
SHORT_LIST = frozenset(("estimate", "prices refresh", "capacity", "launch", "config set", "ui"))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> frozenset[Path]:
    """Put keys wherever people have them; return the files that hold them."""
    home = tmp_path / "home"
    files = {
        ".aws/credentials": f"[default]\naws_access_key_id = AKIA{CANARY}\n"
        f"aws_secret_access_key = {CANARY}\n",
        ".config/gcloud/application_default_credentials.json": json.dumps(
            {"type": "authorized_user", "client_secret": CANARY, "refresh_token": CANARY}
        ),
        ".azure/msal_token_cache.json": json.dumps({"AccessToken": CANARY}),
        ".netrc": f"machine api.wandb.ai login user password {CANARY}\n",
        ".cache/huggingface/token": CANARY,
        ".runpod/config.toml": f'apikey = "{CANARY}"\n',
        ".kube/config": f"users: [{{name: me, user: {{token: {CANARY}}}}}]\n",
    }
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    for name in KEYS:
        monkeypatch.setenv(name, f"{name}-{CANARY}")
    monkeypatch.setenv("HOME", str(home))
    work = tmp_path / "work"
    work.mkdir()
    (work / "model.py").write_text(MODEL)
    monkeypatch.chdir(work)
    return frozenset(home / name for name in files)


@pytest.fixture(autouse=True)
def _nobody_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    there = socket.getaddrinfo

    def known(host, *more, **named):
        if host in HERE:
            return there(host, *more, **named)
        raise socket.gaierror(socket.EAI_NONAME, f"asked for {host}")

    monkeypatch.setattr(socket, "getaddrinfo", known)


def seen_in(folder: Path, kept: frozenset[Path]) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file() and path not in kept)
    return [path for path in files if CANARY.encode() in path.read_bytes()]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_key_is_shown_or_kept(
    name: str, kept: frozenset[Path], gpuplan_home: Path, tmp_path: Path, caplog, capfd
) -> None:
    caplog.set_level(logging.DEBUG)
    for words in words_of(COMMANDS[name], "model.py"):
        with interrupted_after(SERVED_S if name == "ui" else LONGEST_S):
            run([*name.split(), *words])
        said = capfd.readouterr()
        assert CANARY not in said.out + said.err, words
        assert "itself failed" not in said.err, said.err
    assert CANARY not in caplog.text
    assert seen_in(tmp_path, kept) == [] and seen_in(gpuplan_home, kept) == []


@pytest.mark.parametrize("name", [one for one in COMMANDS if one in SHORT_LIST])
def test_no_key_is_shown_where_nothing_can_be_kept(
    name: str, kept: frozenset[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GPUPLAN_HOME", str(tmp_path / "file"))
    for words in words_of(COMMANDS[name], "model.py"):
        with interrupted_after():
            run([*name.split(), *words])
        said = capfd.readouterr()
        assert CANARY not in said.out + said.err, words
        assert "itself failed" not in said.err and "Traceback" not in said.err, said.err
    assert seen_in(tmp_path, kept) == []


def test_the_search_would_find_a_key(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\x00" + CANARY.encode())
    assert seen_in(tmp_path, frozenset()) == [tmp_path / "log"]
    assert {"prices refresh", "capacity", "launch"} <= COMMANDS.keys() >= SHORT_LIST
