"""What build_model() put in evaluation mode trains as after train() in a loop, and is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from runner_jobs import REPOSITORY, make_job, plan_of, run

pytestmark = pytest.mark.slow

MODEL = REPOSITORY / "tests" / "support" / "models" / "resting_model.py"
WORDS = "norm, which build_model() put in evaluation mode (eval()), train:"
FSDP = {"data": 2, "shard": 2, "zero_stage": 3}


@pytest.mark.parametrize(
    ("rests", "warns", "moves"),
    [
        ("part", True, True),
        ("whole", False, True),
        ("none", False, True),
        ("kept", False, False),
    ],
)
def test_parts_at_rest_are_named_where_they_train(
    tmp_path: Path, rests: str, warns: bool, moves: bool
) -> None:
    done = run(make_job(tmp_path, MODEL, plan=None, params={"rests": rests}, steps=1))
    assert done.returncode == 0, done.stderr
    assert (WORDS in done.stderr) == warns
    assert ("moved" in done.stderr) == moves


def test_a_model_that_keeps_them_does_so_when_it_is_sharded(tmp_path: Path) -> None:
    fields = {"plan": plan_of(FSDP), "params": {"rests": "kept"}, "steps": 1}
    done = run(make_job(tmp_path, MODEL, **fields), 2)
    assert done.returncode == 0, done.stderr
    assert WORDS not in done.stderr and "still" in done.stderr and "moved" not in done.stderr
