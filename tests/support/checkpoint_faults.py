"""Checkpoints that are damaged, each in one way that a seed draws: a whole one is gone on from."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import nn

from gpuplan.catalog.errors import GpuplanError
from gpuplan.launcher.runner.checkpoint.checkpoint import Checkpoints
from gpuplan.launcher.runner.checkpoint.contents import Contents
from gpuplan.launcher.runner.job import CheckpointPolicy
from gpuplan.launcher.runner.processes.processes import Processes

Damage = Literal["cut short", "bytes changed", "gone", "empty", "garbage"]
DAMAGES: tuple[Damage, ...] = get_args(Damage)
ALONE = Processes(
    rank=0,
    world=1,
    local_rank=0,
    nodes=1,
    device=torch.device("cpu"),
    host_group=None,
    checkpoint_group=None,
)


@dataclass(frozen=True, kw_only=True)
class CheckpointCase:
    """One damage to one file of the newest checkpoints."""

    number: int
    damage: Damage
    seed: int
    damaged: int
    """How many of three checkpoints, the newest first."""
    in_bucket: bool

    def __str__(self) -> str:
        return f"{self.number}: {self.damaged} of 3 checkpoints {self.damage}"


def checkpoint_cases(seed: int, count: int) -> list[CheckpointCase]:
    """Return so many cases, which a seed draws; every damage in turn."""
    chosen = random.Random(seed)
    return [
        CheckpointCase(
            number=number,
            damage=DAMAGES[number % len(DAMAGES)],
            seed=chosen.randrange(2**31),
            damaged=chosen.choice((1, 1, 2)),
            in_bucket=chosen.random() < 0.3,
        )
        for number in range(count)
    ]


def play_checkpoint(case: CheckpointCase, folder: Path) -> list[str]:
    """Return what is wrong when a run goes on from what is left; nothing, where all is well."""
    chosen = random.Random(case.seed)
    kept = [_save(folder, step, case.in_bucket) for step in (2, 4, 6)]
    for path in kept[-case.damaged :]:
        files = sorted(one for one in path.rglob("*") if one.is_file())
        _damage(case.damage, chosen.choice(files), chosen)
    model, optimizer = _trained(0.0)
    contents = Contents(model=model, optimizer=optimizer)
    try:
        found = _checkpoints(folder, case.in_bucket).resume(contents)
    except GpuplanError as error:
        return [f"a whole checkpoint is left, and not gone on from: {error.message}"]
    if found is None:
        return ["the run begins anew though a whole checkpoint is left"]
    step = int(found.path.name.removeprefix("step-"))
    if step < 6 - 2 * case.damaged:
        return [f"went back to step {step}, further than the damage"]
    if not (next(model.parameters()) == float(step)).all():
        return [f"the weights are not those of step {step}"]
    return []


def _save(folder: Path, step: int, in_bucket: bool) -> Path:
    model, optimizer = _trained(float(step))
    checkpoints = _checkpoints(folder, in_bucket)
    facts = {"step": step, "elapsed_s": 1.0, "scaler": None}
    checkpoints.save(Contents(model=model, optimizer=optimizer), facts=facts, elapsed_s=1.0)
    checkpoints.finish()
    return folder / f"step-{step:08d}"


def _checkpoints(folder: Path, in_bucket: bool) -> Checkpoints:
    found = Checkpoints(folder, CheckpointPolicy(in_bucket=in_bucket, keep=3), ALONE)
    found.open()
    return found


def _trained(weight: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model whose weights are all this, after a step that does not change them."""
    model = nn.Linear(64, 4, bias=False)
    nn.init.constant_(model.weight, weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    return model, optimizer


def _damage(how: Damage, path: Path, chosen: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
        return
    if how == "cut short":
        content = content[: chosen.randrange(len(content))]
    elif how == "bytes changed":
        for _ in range(chosen.choice((1, 8))):
            content[chosen.randrange(len(content))] ^= 1 << chosen.randrange(8)
    elif how == "empty":
        content.clear()
    else:
        content[:] = chosen.randbytes(len(content))
    path.write_bytes(content)
