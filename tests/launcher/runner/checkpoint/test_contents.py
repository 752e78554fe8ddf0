"""What is saved is what training has: saving changes nothing, and nothing in a file is run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from runner_jobs import REPOSITORY, plan_of, train

from gpuplan.launcher.runner.checkpoint.contents import SMALL_FILE, read_small, write_small
from gpuplan.launcher.runner.job import CheckpointPolicy

LEAVES_OUT = REPOSITORY / "tests" / "support" / "models" / "unused_parameters.py"
STATELESS = REPOSITORY / "tests" / "support" / "models" / "stateless_model.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "momentum"),
    [({}, False), ({"data": 2, "shard": 2, "zero_stage": 3}, False), ({}, True)],
    ids=["without state", "without state, fsdp2", "with state"],
)
def test_saving_and_continuing_change_nothing(
    tmp_path: Path, layout: dict[str, Any], momentum: bool
) -> None:
    def losses(name: str, *steps: int, every: int) -> list[float]:
        found: list[float] = []
        for last in steps:
            policy = CheckpointPolicy(every_steps=every)
            how: dict[str, Any] = {"params": {"momentum": momentum}, "checkpoint": policy}
            ranks = layout.get("data", 1)
            found = train(
                tmp_path / name, STATELESS, ranks, plan=plan_of(layout), steps=last, **how
            )
        return found

    straight = losses("straight", 8, every=100)

    assert losses("often", 8, every=1) == straight
    assert losses("parts", 5, 8, every=1) == straight


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout",
    [{}, {"data": 2}, {"data": 2, "shard": 2, "zero_stage": 3}],
    ids=["one device", "ddp", "fsdp2"],
)
def test_a_run_goes_on_whose_optimizer_left_parameters_out(
    tmp_path: Path, layout: dict[str, Any]
) -> None:
    def losses(name: str, *steps: int) -> list[float]:
        found: list[float] = []
        for last in steps:
            policy = CheckpointPolicy(every_steps=2)
            ranks = layout.get("data", 1)
            found = train(
                tmp_path / name,
                LEAVES_OUT,
                ranks,
                plan=plan_of(layout),
                steps=last,
                checkpoint=policy,
            )
        return found

    assert losses("parts", 4, 8) == losses("straight", 8)


def test_small_state_is_read_without_running_it(tmp_path: Path) -> None:
    write_small(tmp_path, {"own": {"seen": 3, "names": ["a"], "mean": torch.ones(2)}})
    found = read_small(tmp_path)
    assert found["own"]["seen"] == 3 and found["own"]["mean"].tolist() == [1.0, 1.0]

    class Command:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'was-run'}",)

    torch.save({"own": Command()}, tmp_path / SMALL_FILE)
    with pytest.raises(ValueError, match=f"{SMALL_FILE}: it is damaged, or holds more than data$"):
        read_small(tmp_path)
    assert not (tmp_path / "was-run").exists()
