"""`--assume-true`, `--assume-false` and `--assume-size`, from the message to the kept answer."""

import json
import re
from pathlib import Path

import pytest

from gpuplan import api
from gpuplan.catalog.errors import UsageError
from gpuplan.cli.main import run
from gpuplan.launcher.store.estimates import Store

pytestmark = pytest.mark.slow

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 64)

    def forward(self, x):
        x = self.first(x)
        if not torch.isfinite(x).all():
            raise ValueError("not finite")
        if x.mean() > 0:
            x = self.second(x)
        return self.second(x[x[:, 0] > 0]).mean()

def build_model():
    return Model()

def make_batch(batch_size=8):
    return (torch.randn(batch_size, 64),)
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def ended(*arguments: str) -> int:
    return run([*arguments, "-q", "--provider", "aws", "--accelerator", "A100-80GB-SXM"])


def test_each_message_names_the_option_that_goes_on(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended("estimate", file.name) == 1
    first = capsys.readouterr().err
    assert re.search(r"--assume-true model\.py:15 or --assume-false model\.py:15\.", first)
    assert ended("estimate", file.name, "--assume-false", "model.py:15") == 1
    assert "--assume-size model.py:17=64 " in capsys.readouterr().err


def test_what_is_assumed_stands_in_the_answer_and_in_what_is_kept(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--assume-false", "model.py:15", "--assume-size", "model.py:17=50%")
    assert ended("estimate", file.name, *options, "--format", "json") == 0
    answer = json.loads(capsys.readouterr().out)
    said = [
        "model.py:13 checks values and stops the step where the check fails: the trace takes it"
        " as passed",
        "assumed: the condition at model.py:15 is false (--assume-false)",
        "assumed: model.py:17 finds 50% (--assume-size)",
    ]
    assert [note for note in said if note in answer["notes"]] == said
    kept = Store().newest_of(file.parent)
    assert kept is not None
    assert kept.origin.spec.assumed == {"model.py:15": False, "model.py:17": "50%"}
    assert set(said) <= set(kept.estimate.notes)


def test_another_assumption_is_another_profile(file: Path) -> None:
    def flops(size: str) -> float:
        assume = {"model.py:15": True, "model.py:17": size}
        return api.profile(file.name, assume=assume).flops.per_sample

    # Two or three products of 64 x 64 weights forward; the input of the first needs no gradient.
    whole = 2 * 64 * 64
    assert flops("100%") == whole * (2 + 3 + 3)
    assert flops("0%") == whole * (2 + 3)
    assert flops("1/sample") == flops("100%")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--assume-true", "model.py"], "is not a line of a Python file"),
        (["--assume-size", "model.py:17"], "is not of the form FILE:LINE=SIZE"),
        (["--assume-size", "model.py:17=many"], "is not understood"),
        (["--assume-true", "m.py:1", "--assume-false", "m.py:1"], "is given twice"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    file: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert ended("estimate", file.name, *options) == 2
    assert message in capsys.readouterr().err


def test_a_model_that_was_named_has_its_own_assumptions(file: Path) -> None:
    named = api.model(str(file), assume={"model.py:15": True})
    assert named.assumed == {"model.py:15": True}
    with pytest.raises(UsageError, match="assume are given beside"):
        api.model(named, assume={"model.py:15": False})
