"""Reading a checkpoint runs nothing that somebody may have put into its files."""

from __future__ import annotations

import dataclasses
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING

from gpuplan.launcher.runner.checkpoint.reading import FAILURES
from gpuplan.launcher.runner.checkpoint.safe_reading import METADATA_FILE, CheckpointReader, load

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Attack:
    """Makes a file where it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def state(fill: float) -> dict[str, Any]:
    tensors = {
        str(dtype): torch.full((4, 3), fill).to(dtype)
        for dtype in (
            torch.float32,
            torch.bfloat16,
            torch.float16,
            torch.int64,
            torch.float8_e4m3fn,
        )
    }
    return {"model": tensors, "optimizer": {"lr": fill, "betas": (fill, 0.99), "name": "adamw"}}


def saved(folder: Path, content: dict[str, Any]) -> Path:
    dcp.save(  # pyright: ignore[reportPrivateImportUsage]
        content, checkpoint_id=folder, no_dist=True
    )
    return folder


def test_what_was_written_is_read_as_torch_reads_it(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path / "one", state(0.5))
    read = state(0.0)
    load(read, checkpoint, no_dist=True)
    assert read["optimizer"] == state(0.5)["optimizer"]
    for name, tensor in state(0.5)["model"].items():
        assert torch.equal(read["model"][name].float(), tensor.float())
    ours, theirs = (one(checkpoint).read_metadata() for one in (CheckpointReader, FileSystemReader))
    assert ours.state_dict_metadata == theirs.state_dict_metadata
    assert ours.storage_data == theirs.storage_data
    assert ours.planner_data == theirs.planner_data


def test_metadata_that_ask_for_anything_else_run_nothing(tmp_path: Path) -> None:
    checkpoint, made = saved(tmp_path / "one", state(0.5)), tmp_path / "made"
    (checkpoint / METADATA_FILE).write_bytes(pickle.dumps(Attack(made)))
    with pytest.raises(pickle.UnpicklingError, match=r"posix\.mkdir, which no checkpoint holds"):
        CheckpointReader(checkpoint).read_metadata()
    assert not made.exists()
    with pytest.raises(AttributeError):  # As torch reads it, it does run.
        FileSystemReader(checkpoint).read_metadata()
    assert made.exists()


class Member:
    """What `getattr(of, name)` gives where it is read, as Python 3.11.2 writes an enumeration."""

    def __init__(self, of: object, name: str) -> None:
        self.asked = of, name

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, self.asked


def test_metadata_written_by_an_early_python_3_11_are_read(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path / "one", state(0.5))
    found = FileSystemReader(checkpoint).read_metadata()
    kept = Member(_MEM_FORMAT_ENCODING, "TORCH_CONTIGUOUS_FORMAT")
    (checkpoint / METADATA_FILE).write_bytes(
        pickle.dumps(dataclasses.replace(found, planner_data=kept))
    )
    read = CheckpointReader(checkpoint).read_metadata()
    assert read.planner_data is _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT
    assert read.state_dict_metadata == found.state_dict_metadata


@pytest.mark.parametrize(
    "asked", [Member(torch.Size, "__init__"), Member(_MEM_FORMAT_ENCODING, "__class__")]
)
def test_no_other_attribute_is_read(tmp_path: Path, asked: Member) -> None:
    checkpoint = saved(tmp_path / "one", state(0.5))
    (checkpoint / METADATA_FILE).write_bytes(pickle.dumps(asked))
    with pytest.raises(pickle.UnpicklingError, match="of something, which no checkpoint holds"):
        CheckpointReader(checkpoint).read_metadata()


def test_a_value_that_is_no_tensor_runs_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made"
    checkpoint = saved(tmp_path / "one", {"optimizer": {"lr": Attack(made)}})
    with pytest.raises(FAILURES):
        load({"optimizer": {"lr": 0.1}}, checkpoint, no_dist=True)
    assert not made.exists()


def test_metadata_of_another_kind_are_refused(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path / "one", state(0.5))
    (checkpoint / METADATA_FILE).write_bytes(pickle.dumps({"state_dict_metadata": {}}))
    with pytest.raises(pickle.UnpicklingError, match="holds a dict"):
        CheckpointReader(checkpoint).read_metadata()
