"""A checkpoint that cannot be used is gone back from, and one that nobody could use is not made."""

from __future__ import annotations

import errno
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gpuplan.catalog.errors import GpuplanError, UsageError
from gpuplan.launcher.runner.checkpoint import checkpoint
from gpuplan.launcher.runner.checkpoint.checkpoint import Checkpoints
from gpuplan.launcher.runner.checkpoint.contents import SMALL_FILE, Contents
from gpuplan.launcher.runner.checkpoint.digests import DIGESTS, OWN_DIGEST, DigestedWriter
from gpuplan.launcher.runner.checkpoint.folder import RUN_FILE, whole_checkpoints
from gpuplan.launcher.runner.job import CheckpointPolicy
from gpuplan.launcher.runner.processes.processes import Processes
from gpuplan.launcher.runner.training.numerics import all_finite

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

CPU = torch.device("cpu")
ALONE = Processes(
    rank=0, world=1, local_rank=0, nodes=1, device=CPU, host_group=None, checkpoint_group=None
)


def trained(weight: float, width: int = 64) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model whose weights are all this, after a step that does not change them."""
    model = nn.Linear(width, 4, bias=False)
    nn.init.constant_(model.weight, weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    model(torch.ones(1, width)).sum().backward()
    optimizer.step()
    return model, optimizer


def contents(weight: float, width: int = 64) -> Contents:
    model, optimizer = trained(weight, width)
    return Contents(model=model, optimizer=optimizer)


def saver(folder: Path, **policy: Any) -> Checkpoints:
    checkpoints = Checkpoints(folder, CheckpointPolicy(**policy), ALONE)
    checkpoints.open()
    return checkpoints


def save(folder: Path, weight: float, *, step: int, **policy: Any) -> Path:
    checkpoints = saver(folder, **policy)
    facts = {"step": step, "elapsed_s": 1.0, "scaler": None}
    checkpoints.save(contents(weight), facts=facts, elapsed_s=1.0)
    checkpoints.finish()
    return folder / f"step-{step:08d}"


def truncate(path: Path) -> None:
    (part,) = path.glob("*.distcp")
    part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])


def flip(path: Path) -> None:
    (part,) = path.glob("*.distcp")
    content = bytearray(part.read_bytes())
    content[:64] = bytes(byte ^ 0xFF for byte in content[:64])
    part.write_bytes(content)


def change_weight(path: Path) -> None:
    """Change a number inside a tensor, which torch reads without a word."""
    (part,) = path.glob("*.distcp")
    content = part.read_bytes()
    weight = struct.pack("<f", 4.0)
    assert weight * 8 in content
    part.write_bytes(content.replace(weight * 8, weight * 7 + struct.pack("<f", 5.0), 1))


def change_small_state(path: Path) -> None:
    content = bytearray((path / SMALL_FILE).read_bytes())
    content[-1] ^= 1  # The length of a comment, which no reader of zip files misses.
    (path / SMALL_FILE).write_bytes(content)


def change_step(path: Path) -> None:
    text = (path / RUN_FILE).read_text()
    (path / RUN_FILE).write_text(text.replace('"step": 4', '"step": 3'))


def garble_metadata(path: Path) -> None:
    (path / ".metadata").write_bytes(b"not a pickle")


def without_metadata(path: Path) -> None:
    (path / ".metadata").unlink()


def without_part(path: Path) -> None:
    (part,) = path.glob("*.distcp")
    part.unlink()


def without_step(path: Path) -> None:
    (path / RUN_FILE).write_text("{}")


DAMAGES = (
    *(truncate, flip, garble_metadata, without_metadata, without_part, without_step),
    *(change_weight, change_small_state, change_step),
)


@pytest.mark.parametrize("in_bucket", [False, True], ids=["folder", "bucket"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_a_damaged_one_is_left_for_the_one_before_it(
    tmp_path: Path, damage: Callable[[Path], None], in_bucket: bool, capsys
) -> None:
    save(tmp_path, 2.0, step=2, in_bucket=in_bucket)
    newest = save(tmp_path, 4.0, step=4, in_bucket=in_bucket)
    damage(newest)
    model, optimizer = trained(0.0)
    found = saver(tmp_path, in_bucket=in_bucket).resume(Contents(model=model, optimizer=optimizer))

    assert found is not None and found.path.name == "step-00000002"
    assert (next(model.parameters()) == 2.0).all()
    said = capsys.readouterr().err
    # In a bucket a file that is too short has not arrived yet, so it was never taken for whole.
    if newest in whole_checkpoints(tmp_path):
        assert "step-00000004 cannot be used: " in said
        assert "going back to the one before it" in said


def test_one_that_an_earlier_version_wrote_is_read_without_digests(tmp_path: Path) -> None:
    newest = save(tmp_path, 4.0, step=4)
    facts = json.loads((newest / RUN_FILE).read_text())
    assert set(facts[DIGESTS]) == {"__0_0.distcp", ".metadata", SMALL_FILE}
    old = {name: one for name, one in facts.items() if name not in (DIGESTS, OWN_DIGEST)}
    (newest / RUN_FILE).write_text(json.dumps(old))
    found = saver(tmp_path).resume(contents(0.0))
    assert found is not None and found.facts["step"] == 4


def test_weights_that_are_no_number_are_not_gone_on_with(tmp_path: Path, capsys) -> None:
    save(tmp_path, 2.0, step=2)
    save(tmp_path, float("nan"), step=4)
    model, optimizer = trained(0.0)
    found = saver(tmp_path).resume(Contents(model=model, optimizer=optimizer))

    assert found is not None and found.facts["step"] == 2
    assert (next(model.parameters()) == 2.0).all()
    assert all(
        value.isfinite().all() for state in optimizer.state.values() for value in state.values()
    )
    assert "its weights are infinite or no number" in capsys.readouterr().err


def test_a_run_does_not_begin_anew_when_none_can_be_used(tmp_path: Path) -> None:
    for step in (2, 4):
        without_metadata(save(tmp_path, 1.0, step=step))
    with pytest.raises(UsageError, match="step-00000004 is not a checkpoint of this model"):
        saver(tmp_path).resume(contents(0.0))


def test_one_that_was_asked_for_is_not_replaced_by_another(tmp_path: Path) -> None:
    whole = save(tmp_path, 2.0, step=2)
    asked = save(tmp_path, 4.0, step=4)
    without_metadata(asked)
    with pytest.raises(UsageError, match="step-00000004") as refused:
        saver(tmp_path, resume=str(asked)).resume(contents(0.0))
    assert f"--resume {whole}" in (refused.value.fix or "")


def test_another_model_is_named_and_nothing_is_said_of_going_back(tmp_path: Path, capsys) -> None:
    for step in (2, 4):
        save(tmp_path, 1.0, step=step)
    with pytest.raises(UsageError, match="step-00000004 is not a checkpoint of this model"):
        saver(tmp_path).resume(contents(0.0, width=8))
    assert "going back" not in capsys.readouterr().err


def test_a_damaged_one_does_not_push_out_what_is_saved_after_going_back(tmp_path: Path) -> None:
    save(tmp_path, 2.0, step=2, keep=1)
    damaged = save(tmp_path, 6.0, step=6, keep=2)
    without_metadata(damaged)
    new = save(tmp_path, 3.0, step=3, keep=1)
    assert whole_checkpoints(tmp_path) == [new, damaged]


def test_a_full_disk_is_told_and_the_one_before_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullDisk(DigestedWriter):
        def write_data(self, plan: Any, planner: Any) -> Any:
            raise OSError(errno.ENOSPC, "No space left on device")

    whole = save(tmp_path, 2.0, step=2)
    monkeypatch.setattr(checkpoint, "DigestedWriter", FullDisk)
    with pytest.raises(GpuplanError, match=r"of step 4 could not be written .* No space left"):
        save(tmp_path, 4.0, step=4)
    assert whole_checkpoints(tmp_path) == [whole]


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_number_among_many_is_found(value: float, dtype: torch.dtype) -> None:
    weights = [nn.Parameter(torch.ones(size, dtype=dtype)) for size in (0, 3, 1000, 7)]
    assert all_finite(weights, CPU)
    assert all_finite([], CPU)
    weights[2].data[517] = value
    assert not all_finite(weights, CPU)


def test_large_weights_are_finite() -> None:
    assert all_finite([nn.Parameter(torch.full((1000,), 3e38))], CPU)


def test_the_best_stays_until_the_checkpoint_of_a_better_one_is_whole(tmp_path: Path) -> None:
    """An evaluation is better while an older checkpoint is still written: the disk may be full."""
    checkpoints = saver(tmp_path, keep=1)

    def begin(step: int) -> None:
        facts = {"step": step, "elapsed_s": 1.0, "scaler": None}
        checkpoints.save(contents(1.0), facts=facts, elapsed_s=1.0)

    begin(20)
    checkpoints.keep_best(20)
    begin(30)
    checkpoints.keep_best(40)
    begin(40)  # Names that of step 30 first.
    assert [one.name for one in whole_checkpoints(tmp_path)] == ["step-00000020", "step-00000030"]
    checkpoints.finish()
    assert [one.name for one in whole_checkpoints(tmp_path)] == ["step-00000040"]
