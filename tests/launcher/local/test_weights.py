"""`--weights` and `gpuplan export-weights` as they are typed: what is said, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from launches import make_project
from safetensors.torch import load_file, save_file
from torch import nn

from gpuplan.catalog.errors import UsageError
from gpuplan.cli.main import run
from gpuplan.launcher.prepare.request import LaunchRequest, parse_data
from gpuplan.launcher.prepare.task.weights import weights_on_node
from gpuplan.launcher.runner.training_options import TrainingOptions

MODEL = """
import torch


def build_model():
    return torch.nn.Linear(8, 1)


def make_batch(batch_size):
    return (torch.randn(batch_size, 8),)


def compute_loss(model, batch):
    return model(*batch).square().mean()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with a model file and the checkpoint of a run in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(MODEL)
    checkpoint = tmp_path / "out" / "checkpoints" / "step-00000002"
    state = {"model": nn.Linear(8, 1).state_dict(), "optimizer": {"large": torch.zeros(9)}}
    dcp.save(state, checkpoint_id=checkpoint, no_dist=True)  # pyright: ignore
    (checkpoint / "run.json").write_text('{"step": 2, "elapsed_s": 1.0}')
    return tmp_path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--weights", "gone"], "There are no weights at"),
        (["--weights", "old.bin"], "is a pickle, and reading one can run code"),
        (["--weights", "."], "old.bin is a pickle"),
        (["--allow-missing", "head.*"], "--allow-missing is given without --weights"),
    ],
)
def test_weights_that_cannot_be_read_are_refused_before_a_process_starts(
    folder: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "old.bin").write_bytes(b"PK")
    assert run(["run", "net.py", "--steps", "1", "--device", "cpu", *options]) == 2
    assert said in capsys.readouterr().err


def test_options_of_weights_are_not_for_a_script(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "--command", "train.py", "--weights", "w.safetensors"]) == 2
    assert "--weights applies to a model file only" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_has_other_names_says_which(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save_file({"weight": torch.ones(1, 8), "scale": torch.ones(1)}, "w.safetensors")
    options = ["--steps", "1", "--device", "cpu", "--weights", "w.safetensors", "--out-dir", "new"]

    assert run(["run", "net.py", *options]) == 2
    said = capfd.readouterr().err
    assert "1 of the model's 2 are missing in the files (bias)" in said
    assert "Traceback" not in said

    allowed = ["--allow-missing", "bias", "--allow-unexpected", "scale"]
    assert run(["run", "net.py", *options, *allowed]) == 0
    said = capfd.readouterr().err
    assert "weights: 1 tensor of" in said and "bias begins anew" in said
    assert run(["export-weights", "new", "--to", "safetensors", "-o", "trained"]) == 0
    trained = load_file("trained/model.safetensors")
    torch.testing.assert_close(trained["weight"], torch.ones(1, 8), atol=1e-3, rtol=0)


def test_an_export_says_what_it_wrote(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export-weights", "out", "--to", "safetensors"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("9 values, 0 kB, of step 2 · ")
    assert lines[1:] == ["  model.safetensors"]

    words = ["export-weights", "out", "--to", "safetensors", "-o", "new", "--format", "json"]
    assert run(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["files"] == ["model.safetensors"] and answer["parameters"] == 9
    assert set(load_file("new/model.safetensors")) == {"weight", "bias"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["out", "--to", "huggingface"], "no config of transformers"),
        (["gone", "--to", "safetensors"], "has no whole checkpoint"),
        (["out", "--to", "safetensors", "--checkpoint", "best"], "has no evaluation"),
        (["out", "--to", "safetensors", "--checkpoint", "7"], "it has those of 2"),
        (["out", "--to", "safetensors", "--checkpoint", "last"], "is no checkpoint"),
        (["out", "--to", "safetensors", "-o", "net.py"], "is not empty"),
        (["out", "--to", "gguf"], "gguf"),
        (["out"], "--to"),
    ],
)
def test_an_export_that_cannot_be_made_says_why(
    folder: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export-weights", *options]) == 2
    printed = capsys.readouterr()
    assert said in printed.err and not printed.out
    assert sorted(one.name for one in (folder / "out").iterdir()) == ["checkpoints"]


def test_the_best_is_the_best_whose_checkpoint_is_whole(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run killed between an evaluation and its checkpoint, on a disk that was full."""
    evaluations = folder / "out" / "evaluations.jsonl"
    words = ["export-weights", "out", "--to", "safetensors", "--checkpoint", "best"]
    evaluations.write_text('{"step": 2, "best_step": 2}\n{"step": 4, "best_step": 4}\n{"step": 6')
    assert run([*words, "-o", "best"]) == 0
    assert "of step 2" in capsys.readouterr().out
    # What a machine that lost its power can leave in a file.
    evaluations.write_bytes(
        b'{"step": 2, "best_step": 2}\n\xff\x00\x00\n{"step": 4, "best_step": 4}\n'
    )
    assert run([*words, "-o", "damaged"]) == 0
    assert "of step 2" in capsys.readouterr().out
    evaluations.write_text('{"step": 4, "best_step": 4}\n')
    assert run([*words, "-o", "other"]) == 2
    said = capsys.readouterr().err
    assert "no checkpoint of step 4; it has those of 2." in said
    assert "give --checkpoint 2 or newest." in said


def test_nodes_find_the_weights_in_what_they_are_sent(folder: Path) -> None:
    (folder / "w").mkdir()
    save_file({"weight": torch.ones(1)}, folder / "w" / "model.safetensors")
    project = make_project(workdir=folder)

    def on_node(weights: str) -> str | None:
        data = (parse_data("s3://bucket/models:/models"),)
        training = TrainingOptions(weights=weights)
        return weights_on_node(LaunchRequest(training=training, data=data), project).weights

    assert on_node("w") == "../sky_workdir/w"
    assert on_node("/models/llama") == "/models/llama"
    with pytest.raises(UsageError, match="is not in .*, the folder that is sent"):
        on_node("/elsewhere/llama")
    with pytest.raises(UsageError, match="There are no weights at"):
        on_node("gone")
