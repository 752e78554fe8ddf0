"""What the record of a run says of how it ran."""

from pathlib import Path

import pytest
from runner_jobs import REPOSITORY, plan_of, train

from gpuplan.profiles.records import read_records

SIZE = {
    "layers": 2,
    "hidden": 32,
    "heads": 4,
    "kv_heads": 2,
    "ffn": 64,
    "vocab": 100,
    "seq_len": 16,
}


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "share"), [(1, 0.5), (None, None)])
def test_a_record_says_which_part_of_the_blocks_ran_again(
    tmp_path: Path, layers: int | None, share: float | None
) -> None:
    plan = plan_of({}, recompute="full", recompute_layers=layers)
    train(tmp_path, REPOSITORY / "examples" / "decoder.py", 1, plan=plan, params=SIZE, steps=2)
    (record,) = read_records(tmp_path / "record.json")
    assert (record.recompute, record.recompute_share) == ("full", share)
