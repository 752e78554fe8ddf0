"""In what FSDP reduces gradients follows the plan, and the record of the run says it."""

from pathlib import Path

import pytest
import torch
from runner_jobs import REPOSITORY, plan_of, train

from gpuplan.launcher.runner.job import execution_of
from gpuplan.launcher.runner.training.numerics import fsdp_policy
from gpuplan.profiles.records import read_records

DECODER = REPOSITORY / "examples" / "decoder.py"
SIZE = {
    "layers": 2,
    "hidden": 32,
    "heads": 4,
    "kv_heads": 2,
    "ffn": 64,
    "vocab": 100,
    "seq_len": 16,
}
SHARDED = {"data": 2, "shard": 2, "zero_stage": 3}


@pytest.mark.parametrize(
    ("fields", "reduced"),
    [
        ({}, torch.float32),
        ({"reduce_dtype": None}, torch.float32),
        ({"reduce_dtype": "bf16"}, torch.bfloat16),
    ],
)
def test_the_policy_is_the_plan_s(fields: dict[str, str], reduced: torch.dtype) -> None:
    execution = execution_of(plan_of(SHARDED, precision="bf16-amp", **fields))
    policy = fsdp_policy(execution)
    assert (policy.param_dtype, policy.reduce_dtype) == (torch.bfloat16, reduced)


@pytest.mark.slow
@pytest.mark.parametrize("asked", [None, "bf16"])
def test_a_run_reduces_so_and_records_it_and_what_it_gathers(
    tmp_path: Path, asked: str | None
) -> None:
    layout = SHARDED | {"zero_stage": 3 if asked else 2}
    plan = plan_of(layout, precision="bf16-amp", reduce_dtype=asked)
    train(tmp_path, DECODER, 2, plan=plan, params=SIZE, steps=2)
    (record,) = read_records(tmp_path / "record.json")
    assert ("reduce-bf16" in record.features) == bool(asked)
    assert ("gathered-once" in record.features) == (asked is None)
