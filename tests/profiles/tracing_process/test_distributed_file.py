"""A file that shards its model itself is told to leave that to the plan."""

from pathlib import Path

import pytest

from gpuplan.catalog.errors import UserFileError
from gpuplan.profiles.tracing_process.distributed_file import FIX, with_distributed_fix
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

WRAPPINGS = {
    "fully_shard": "from torch.distributed.fsdp import fully_shard as wrap",
    "DDP": "from torch.nn.parallel import DistributedDataParallel as wrap",
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_the_fix_is_to_leave_it_out(wrapping: str, tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        f"""
import torch
{WRAPPINGS[wrapping]}

def build_model():
    return wrap(torch.nn.Linear(8, 8))

def make_batch(batch_size=4):
    return (torch.randn(batch_size, 8),)
"""
    )
    with pytest.raises(UserFileError, match=r"model.py:6, in build_model") as refused:
        make_profile(parse_model_spec(str(file)), use_cache=False)
    assert refused.value.fix == FIX


def test_other_errors_keep_their_fix() -> None:
    error = UserFileError("model.py:3, in build_model: ValueError: no", fix="correct model.py.")
    assert with_distributed_fix(error) is error
