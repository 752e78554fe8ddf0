"""Real pipeline ranks on the CPU (gloo), and one process that must come to the same numbers.

Ranks start by a fork server that has torch loaded, so a case takes seconds.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from gpuplan.launcher.runner.pipeline.schedule import (
    PipelineSchedule,
    StageModule,
    block_paths,
    build_stages,
    cut_model,
    make_schedule,
)
from gpuplan.profiles.user_model.contract import Workload, load_workload
from gpuplan.profiles.user_model.spec import parse_model_spec

CPU = torch.device("cpu")
TIMEOUT_S = 120
LEARNING_RATE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, how its ranks share it, and for how many steps."""

    model: str
    params: dict[str, Any] = field(default_factory=dict)
    pipeline: int = 2
    virtual: int = 1
    data: int = 1
    """Data-parallel ranks; more than one wrap each stage in FSDP."""
    replicas: int = 1
    """Replicas of the shards of the data-parallel ranks."""
    micro_batches: int = 4
    micro_batch: int = 2
    steps: int = 5
    kind: Any = "1f1b"
    recompute: str | None = None
    """Put on the blocks `before` or `after` the model is cut."""
    compiled: bool = False
    bf16: bool = False
    """Whether forward passes run under autocast."""
    scale: float = 1.0


@dataclass
class Outcome:
    """What a run ends with."""

    losses: list[float] = field(default_factory=list)
    parameters: dict[str, Tensor] = field(default_factory=dict)
    """Parameters by their name in the whole model."""
    held: list[list[str]] = field(default_factory=list)
    """Names of the parameters on each rank."""
    state_keys: set[str] = field(default_factory=set)


def workload_of(case: Case) -> Workload:
    """Return the workload of a case's model file."""
    return load_workload(parse_model_spec(case.model, params=case.params))


def build(case: Case) -> tuple[Workload, nn.Module]:
    """Return the workload and a model with the weights that every process starts from."""
    workload = workload_of(case)
    torch.manual_seed(0)
    return workload, workload.build_model()


def batches(workload: Workload, case: Case, step: int, data_rank: int) -> list[Any]:
    """Return the micro-batches of one data-parallel rank in one step."""
    torch.manual_seed(1 + step * case.data + data_rank)
    return [workload.make_batch(case.micro_batch) for _ in range(case.micro_batches)]


def alone(case: Case) -> Outcome:
    """Return what one process with gradient accumulation comes to."""
    workload, model = build(case)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    outcome = Outcome(state_keys=set(model.state_dict()))
    for step in range(case.steps):
        total = 0.0
        given = [one for rank in range(case.data) for one in batches(workload, case, step, rank)]
        for batch in given:
            with cast(case):
                loss = workload.compute_loss(model, batch) / len(given)
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        outcome.losses.append(total)
    outcome.parameters = {
        name: one.detach() for name, one in model.named_parameters(remove_duplicate=False)
    }
    return outcome


def together(case: Case, folder: Path) -> Outcome:
    """Return what the ranks of a pipeline come to."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pipeline_ranks", "torch._dynamo"])
    world = case.pipeline * case.data
    ranks = [context.Process(target=_rank, args=(rank, case, folder)) for rank in range(world)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(TIMEOUT_S)
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
    assert codes == [0] * world, f"the ranks ended with {codes}"
    outcome = Outcome()
    for rank in range(world):
        found = torch.load(folder / f"{rank}.pt", weights_only=False)
        outcome.losses = found["losses"] or outcome.losses
        outcome.held.append(list(found["parameters"]))
        outcome.state_keys |= found["state_keys"]
        for name, value in found["parameters"].items():
            known = outcome.parameters.setdefault(name, value)
            assert torch.equal(known, value), f"the copies of {name} differ"
    return outcome


def _rank(rank: int, case: Case, folder: Path) -> None:
    torch.set_num_threads(1)
    world = case.pipeline * case.data
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=TIMEOUT_S / 2),
    )
    mesh = init_device_mesh(
        "cpu",
        (case.pipeline, case.replicas, case.data // case.replicas),
        mesh_dim_names=("stage", "replicate", "shard"),
    )
    data = rank % case.data
    workload, model = build(case)
    blocks = [model.get_submodule(path) for path in block_paths(model)]
    if case.recompute == "before":
        recompute(blocks)
    cut = cut_model(
        workload.compute_loss,
        model,
        workload.make_batch(case.micro_batch),
        case.pipeline * case.virtual,
    )
    stages = build_stages(
        cut,
        workload.compute_loss,
        model,
        rank=mesh.get_local_rank("stage"),
        ranks=case.pipeline,
        device=CPU,
        cast=partial(cast, case),
    )
    for stage in stages:
        _prepare(stage, case, mesh["replicate", "shard"] if case.replicas > 1 else mesh["shard"])
    schedule = make_schedule(
        stages, mesh.get_group("stage"), CPU, case.micro_batches, kind=case.kind
    )
    losses = _train(workload, case, stages, schedule, data)
    # Every rank reads the parameters in the same order, so that shards are gathered together.
    parameters = {
        name: (one.full_tensor() if isinstance(one, DTensor) else one).detach()
        for stage in stages
        for name, one in stage.named_parameters()
    }
    keys = {key for stage in stages for key in stage.state_dict()}
    found = {"losses": losses, "parameters": parameters, "state_keys": keys}
    torch.save(found, folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def _prepare(stage: StageModule, case: Case, shards: Any) -> None:
    if case.recompute == "after":
        recompute(stage.pipeline_blocks)
    if case.compiled:
        for block in stage.pipeline_blocks:
            block.compile(backend="aot_eager")
    if case.data > 1:
        for block in stage.pipeline_blocks:
            fully_shard(block, mesh=shards, reshard_after_forward=case.replicas == 1)
        fully_shard(stage, mesh=shards)


def _train(
    workload: Workload,
    case: Case,
    stages: Sequence[nn.Module],
    schedule: PipelineSchedule,
    data_rank: int,
) -> list[float]:
    optimizer = torch.optim.AdamW([p for s in stages for p in s.parameters()], lr=LEARNING_RATE)
    losses: list[float] = []
    for step in range(case.steps):
        given = batches(workload, case, step, data_rank)
        loss = schedule.run(given, torch.tensor(case.scale))
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and case.scale != 1:
                    parameter.grad.div_(case.scale)
        optimizer.step()
        optimizer.zero_grad()
        if loss is not None:
            losses.append(loss.item())
    return losses


def recompute(blocks: Sequence[nn.Module]) -> None:
    """Run blocks again in the backward pass."""
    for block in blocks:
        forward: Callable[..., Any] = block.forward
        block.forward = partial(checkpoint, forward, use_reentrant=False)


def cast(case: Case) -> Any:
    """Return the context of a case's forward passes."""
    return torch.autocast("cpu", torch.bfloat16) if case.bf16 else nullcontext()
