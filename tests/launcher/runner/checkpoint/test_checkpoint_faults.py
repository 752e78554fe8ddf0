"""Damaged checkpoints: a part of the matrix that `make soak` plays as a whole."""

from pathlib import Path

import pytest
import torch
from checkpoint_faults import CheckpointCase, checkpoint_cases, play_checkpoint

from gpuplan.launcher.runner.checkpoint.contents import SMALL_FILE, read_small

SEED = 7
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.mark.parametrize("case", checkpoint_cases(SEED, 10), ids=str)
def test_a_run_goes_on_from_the_newest_that_is_whole(tmp_path: Path, case: CheckpointCase) -> None:
    assert play_checkpoint(case, tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"PK", b"\x80", b"\x80\x02]q\x00."])
def test_small_state_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / SMALL_FILE).write_bytes(content)
    with pytest.raises(ValueError, match=SMALL_FILE):
        read_small(tmp_path)


def test_small_state_that_is_no_mapping_is_named(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / SMALL_FILE)
    with pytest.raises(ValueError, match="holds no names"):
        read_small(tmp_path)
