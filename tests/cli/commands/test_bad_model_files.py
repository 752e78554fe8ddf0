"""Every way in which a model file can be bad: one message, the right exit code, no traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from gpuplan.catalog.errors import GpuplanError
from gpuplan.cli.main import run
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.batch import ProfileRequest, profile_all

GOOD = """
import torch
from torch import nn

def build_model(width=8):
    return nn.Linear(width, 4)

def make_batch(batch_size, width=8):
    return torch.randn(batch_size, width), torch.randint(4, (batch_size,))

def compute_loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
"""
CLASS_ONLY = """
import torch

class Net(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()

    def forward(self, tokens):
        return tokens
"""


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


KERAS = "import keras\nmodel = keras.Sequential()\n"
BEFORE_IT_RUNS: dict[str, tuple[bytes, int, list[str]]] = {
    "empty": (b" \n", 1, ["is empty", "gpuplan init"]),
    "not-text": (b"\x80\x81\x82", 1, ["is not a Python file in UTF-8"]),
    "latin-1": ("# caf\u00e9\n".encode("latin-1"), 1, ["UTF-8", "declare its encoding"]),
    "null-bytes": (b"x = 1\0", 1, ["model.py"]),
    "syntax": (b"x = 1\ndef f(:\n", 1, ["model.py:2: SyntaxError", "2 | def f(:"]),
    "indent": (b"if True:\nx = 1\n", 1, ["model.py:2: IndentationError"]),
    "keras": (KERAS.encode(), 1, ["keras", "PyTorch only", "launch --framework keras"]),
    "jax": (b"from jax import numpy\n", 1, ["PyTorch only", "launch --framework jax"]),
    "flax": (b"import flax.linen as nn\n", 1, ["made with flax", "launch --framework jax"]),
    "tensorflow": (b"import tensorflow as tf\n", 1, ["launch --framework tensorflow"]),
}


@pytest.mark.parametrize("name", BEFORE_IT_RUNS)
def test_a_file_that_cannot_run(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, code, words = BEFORE_IT_RUNS[name]
    file = tmp_path / "model.py"
    file.write_bytes(content)
    assert run(["profile", str(file)]) == code
    said(capsys, words)


OPTIONS: dict[str, tuple[list[str], list[str]]] = {
    "no file": (["modle.py"], ["no file modle.py", "Did you mean model.py?", "gpuplan init"]),
    "folder": (["."], [". is a folder", "model.py"]),
    "empty": ([""], ["No model is named", "gpuplan init"]),
    "nul": (["a\0b.py"], ["cannot be read"]),
    "class of no file": (["none.py:Net"], ["no file none.py"]),
    "no config": (["hf:."], ["no file", "config.json"]),
    "param": (["model.py", "--param", "layers"], ["--param layers", "key=value"]),
    "param name": (["model.py", "--param", "2x=1"], ["--param 2x=1", "key=value"]),
    "param twice": (["model.py", "--param", "a=1", "--param", "a=2"], ["given twice"]),
    "input": (["model.py:Net", "--input", "3,x"], ["--input 3,x is not a shape"]),
    "input zero": (["model.py:Net", "--input", "0"], ["is not a shape"]),
    "input dtype": (["model.py:Net", "--input", "8:flaot"], ["Did you mean float"]),
    "timeout": (["model.py", "--timeout", "0s"], ["above zero"]),
    "micro-batch": (["model.py", "--micro-batch", "0"], ["above zero"]),
    "negative": (["model.py", "--micro-batch", "-4"], ["'-4'"]),
    "precision": (["model.py", "--precision", "bf61"], ["Did you mean bf16"]),
    "optimizer": (["model.py", "--optimizer", "adamv"], ["Did you mean adam"]),
    "profile": (["other.json"], ["other.json is not a profile: source_hash is missing, and 1"]),
    "not Python": (["notes.md"], ["notes.md is not a Python file", "gpuplan init"]),
    "profile of another format": (
        ["model.py", "--out-file", "x.csv"],
        ["gpuplan profile writes no .csv files", "end the name in .json"],
    ),
    "profile param": (["other.json", "--param", "a=1"], ["finished profile"]),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_model_or_option_that_makes_no_sense(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments, words = OPTIONS[name]
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(GOOD)
    Path("other.json").write_text('{"name": "x"}')
    Path("notes.md").write_text("# Notes")
    assert run(["profile", *arguments]) == (1 if name == "profile" else 2)
    said(capsys, words)


def test_a_file_that_may_not_be_read(
    home_without_privileges: Path, capsys: pytest.CaptureFixture[str], require
) -> None:
    require("posix", "permissions")
    file = home_without_privileges / "model.py"
    file.write_text(GOOD)
    file.chmod(0)
    assert run(["profile", str(file)]) == 2
    said(capsys, ["model.py cannot be read: Permission denied"])


def said(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    for word in words:
        assert word in captured.err


WHILE_IT_RUNS: dict[str, tuple[str, list[str]]] = {
    "missing import": (
        "import torch\nimport cv2\n",
        ["model.py:2: the module cv2 is not installed", "2 | import cv2", "opencv-python"],
    ),
    "missing submodule": ("import torch.nope\n", ["torch.nope", "1 | import torch.nope"]),
    "missing neighbour": (
        "import helper.none\n" + GOOD,
        ["no module helper.none beside model.py"],
    ),
    "exit": ("import sys\nsys.exit('bye')\n", ["model.py:2: called sys.exit('bye')", "__main__"]),
    "quit": (GOOD + "\nraise SystemExit\n", ["called sys.exit()"]),
    "interrupt": ("raise KeyboardInterrupt\n", ["model.py:1: KeyboardInterrupt"]),
    "no build_model": ("import torch\n", ["has no build_model()"]),
    "class only": (CLASS_ONLY, ["the class Net", "init --from", "return Net(hidden=hidden)"]),
    "build_model raises": (
        changed("return nn.Linear(width, 4)", "return nn.MultiheadAttention(100, 3)"),
        ["model.py:6, in build_model: AssertionError: embed_dim", "6 | return nn.Multihead"],
    ),
    "raises in a neighbour": (
        "from helper import fail\n" + changed("return nn.Linear(width, 4)", "return fail()"),
        [
            "helper/__init__.py:2, in fail: ZeroDivisionError",
            "2 | return 1 / 0",
            "correct helper/__init__.py, then",
        ],
    ),
    "model of the wrong kind": (
        changed("return nn.Linear(width, 4)", "return 3"),
        ["build_model() returned an int"],
    ),
    "nothing trainable": (
        changed("nn.Linear(width, 4)", "nn.Linear(width, 4).requires_grad_(False)"),
        ["nothing to train: all 2 parameters are frozen"],
    ),
    "batch of the wrong kind": (
        changed("return torch.randn(batch_size, width), torch", "return {1, 2, 3} or torch"),
        ["make_batch(2) returned a set of 3, not a tuple, a list, a dict or a tensor"],
    ),
    "batch of the wrong shape": (
        changed("torch.randn(batch_size, width)", "torch.randn(batch_size, 9)"),
        ["model.py:12, in compute_loss: RuntimeError", "12 | return nn.functional"],
    ),
    "model and batch disagree": (
        GOOD.split("def compute_loss")[0],
        ["failed while its model ran: TypeError: Linear.forward() takes 2", "make_batch() gives"],
    ),
    "loss not scalar": (
        changed("(model(batch[0]), batch[1])", "(model(batch[0]), batch[1], reduction='none')"),
        ["compute_loss() returned a tensor of shape (2,)", "loss.mean()"],
    ),
    "detached loss": (
        changed("model(batch[0])", "model(batch[0]).detach()"),
        ["depends on no trainable parameter"],
    ),
    "batch of one size": (
        changed(
            "randn(batch_size, width), torch.randint(4, (batch_size,))",
            "randn(4, width), torch.randint(4, (4,))",
        ),
        ["a batch of 2 samples is as large as one of", "make batch_size the first dimension"],
    ),
    "batch of 0 samples": (
        changed(
            "randn(batch_size, width), torch.randint(4, (batch_size,))",
            "randn(0, width), torch.randint(4, (0,))",
        ),
        [
            "make_batch(2) returned a batch of 0 samples: a tensor of shape (0, 8)",
            "its argument is the first dimension",
        ],
    ),
    "batches of 0 samples by default": (
        changed("make_batch(batch_size,", "make_batch(batch_size=0,"),
        ["make_batch(batch_size=0) makes batches of 0 samples", "1 or more", "(batch_size=8)"],
    ),
    "several losses": (
        changed(
            "return nn.functional.cross_entropy(model(batch[0]), batch[1])",
            "return model(batch[0]).mean(), model(batch[0]).sum()",
        ),
        ["compute_loss() returned a tuple of 2", "of several losses their sum"],
    ),
    "lengths of packed sequences as a list": (
        GOOD.replace(
            "nn.functional.cross_entropy(model(batch[0]), batch[1])",
            "nn.utils.rnn.pack_padded_sequence(model(batch[0]), batch[1].tolist()).data.sum()",
        ),
        ["model.py:12", "Tensor.tolist needs the values of a tensor", "12 | return nn.ut"],
    ),
    "a script that trains": (
        "import torch\nmodel = torch.nn.Linear(4, 4)\n"
        "torch.optim.SGD(model.parameters(), 0.1).step()\n",
        ["has no build_model()"],
    ),
    "data-dependent shape": (
        changed("model(batch[0]), batch[1]", "(y := model(batch[0]))[y.sum(1) > 0], batch[1]"),
        ["model.py:12, in compute_loss: indexing with a mask needs", "12 | return nn.functional"],
    ),
    "item": (
        changed(
            "    return nn.functional",
            "    if model(batch[0]).sum().item() > 0:\n        pass\n    return nn.functional",
        ),
        ["model.py:12", "--assume-true"],
    ),
    "endless recursion": (
        changed("return nn.Linear(width, 4)", "return build_model(width)"),
        ["model.py:6, in build_model: RecursionError"],
    ),
    "a very long message": (
        "raise ValueError('\\n'.join(map(str, range(1000))))\n",
        ["model.py:1: ValueError: 0", "7 …"],
    ),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what each bad file ended with; they share one process that has imported torch."""
    requests = {}
    for name, (text, _) in WHILE_IT_RUNS.items():
        folder = tmp_path_factory.mktemp("bad")
        (folder / "helper").mkdir()
        (folder / "helper" / "__init__.py").write_text("def fail():\n    return 1 / 0\n")
        (folder / "model.py").write_text(text)
        requests[name] = ProfileRequest(
            path=folder / "model.py", params={}, numerics=frozenset(["fp32"])
        )
    made = profile_all(list(requests.values()))
    return {name: made[request.key] for name, request in requests.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", WHILE_IT_RUNS)
def test_a_file_that_fails_while_it_runs(name: str, outcomes: dict[str, Any]) -> None:
    error = outcomes[name]
    assert isinstance(error, GpuplanError), error
    assert error.exit_code == 1
    assert error.fix
    for word in WHILE_IT_RUNS[name][1]:
        assert word in str(error)
    assert "Traceback" not in str(error)
    assert str(Path(__file__).parents[3] / "profiles") not in str(error)


def gpuplan(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpuplan", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, capsys, require) -> None:
    require("posix", "only there a pipe has a name")
    os.mkfifo(tmp_path / "model.py")
    assert run(["profile", str(tmp_path / "model.py")]) == 2
    assert "is not a regular file" in capsys.readouterr().err


@pytest.mark.slow
def test_an_endless_loop_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("while True:\n    pass\n")
    done = gpuplan("profile", "model.py", "--timeout", "3s", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: model.py was not done after 3 seconds (the time limit).")
    assert "--timeout" in done.stderr


@pytest.mark.slow
def test_a_users_own_packages_and_printing_do_no_harm(tmp_path: Path) -> None:
    for name in ("catalog", "profiles", "planner", "launcher", "cli", "api"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("WIDTH = 8\n")
    text = "import api, catalog, cli, launcher, planner, profiles\nprint('{')\n"
    (tmp_path / "model.py").write_text(text + GOOD.replace("width=8", "width=catalog.WIDTH"))
    done = gpuplan("profile", "model.py", "--format", "json", "-v", folder=tmp_path)
    assert done.returncode == 0
    assert Profile.model_validate(json.loads(done.stdout)).parameters == 36
    assert "{" in done.stderr.splitlines()


@pytest.mark.slow
def test_a_failure_leaves_no_file_behind(tmp_path: Path, gpuplan_home: Path) -> None:
    (tmp_path / "model.py").write_text(dedent(GOOD) + "\nraise ValueError('no')\n")
    done = gpuplan("profile", "model.py", "--out-file", "profile.json", folder=tmp_path)
    assert done.returncode == 1
    assert not (tmp_path / "profile.json").exists()
    assert not any(path.is_file() for path in gpuplan_home.rglob("*"))
