"""A plan says whether it can be run, by what the traced model says of itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuplan.cli.main import run as cli

pytestmark = pytest.mark.slow

MODELS = Path(__file__).parents[2] / "support" / "models"


@pytest.mark.parametrize(
    ("file", "layout", "runnable"),
    [
        ("tensor_decoder.py", "dp1.tp2.sp", True),
        ("split_decoder.py", "dp1.tp2", False),
        ("tied_decoder.py", "dp1.tp2", True),
        ("unevenly_tied_decoder.py", "dp1.tp2", False),
        ("split_decoder.py", "dp2", True),
    ],
)
def test_the_plan_says_what_the_runner_would(
    capsys: pytest.CaptureFixture[str], file: str, layout: str, runnable: bool
) -> None:
    asked = ["estimate", str(MODELS / file), "--accelerator", "H100:2", "--layout", layout]
    more = ["--micro-batch", "2", "--global-batch", "8", "--format", "json"]
    cli([*asked, *more])
    (plan, *_) = json.loads(capsys.readouterr().out)["plans"]

    assert plan["runnable"] is runnable, plan["why_not_runnable"]
    assert (plan["why_not_runnable"] is None) is runnable
