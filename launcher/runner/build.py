"""From a job to what trains: the model built, checked against its plan, spread over processes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from ...catalog.errors import NoFeasiblePlanError, UsageError
from ...planner.plan.layout import Layout
from ...planner.plan.runnable import why_not_runnable
from ...profiles.user_model.structure.blocks import find_blocks
from ...profiles.user_model.structure.frozen import cast_frozen
from ...profiles.user_model.structure.tensor_plan import tensor_plan_kind, tensor_plan_of
from ...profiles.user_model.structure.ties import completed_plan, tied_blocks, tied_modules
from ...profiles.user_model.training_step import recompute_blocks
from ...profiles.user_model.workload import Workload
from .input.compared_samples import loss_warnings
from .input.samples import seed_everything
from .job import Execution, Job
from .parallel import tensor_parallel
from .parallel.empty_optimizers import empty_optimizers
from .parallel.initial_weights import build_without_memory, hand_out, only_first_builds
from .parallel.parallelize import LossModule, block_modules, compile_model, parameters_of, spread
from .parallel.pipeline_parallel import cut_into_stages, staged_model
from .parallel.replaced_parameters import Originals
from .parallel.shared_buffers import SharedBuffers
from .parallel.split_dropout import SplitDropout, split_dropout
from .pipeline.blocks import block_paths
from .processes.processes import Position, Processes, make_mesh
from .reporting.metrics import say
from .training.loss_weights import loss_weights
from .training.numerics import LossScaler, caster, make_scaler, use_matmul_format
from .training.resting_modules import RestingModules
from .training.step import Gradients, Step, WholeModel
from .training.trained_parameters import forget_gradients, refuse_closures, refuse_foreign
from .weights.initial import chosen_weights, load_pretrained
from .weights.model_facts import model_facts
from .weights.names import names_of


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """Everything that trains, on one process."""

    execution: Execution
    position: Position
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: LossScaler | None
    step: Step
    buffers: SharedBuffers
    parameters: int
    """Number of parameters of the whole model."""
    model_facts: Mapping[str, Any]
    """What a checkpoint says of the whole model."""
    blocks: int
    """Blocks that the whole model repeats."""

    @property
    def recompute_share(self) -> float | None:
        """Part of the blocks that run again in the backward pass; None where all do, or none."""
        layers = self.execution.recompute_layers
        return None if layers is None else min(1.0, layers / max(1, self.blocks))


def job_facts(job: Job, workload: Workload, trainer: Trainer, world: int) -> dict[str, Any]:
    """Return what a checkpoint says of what was run, and how."""
    execution = trainer.execution
    return {
        "model": workload.name,
        "parameters": trainer.parameters,
        "global_batch": execution.global_batch,
        "processes": world,
        "layout": asdict(execution.layout),
        "precision": execution.precision,
        "plan": (job.plan or {}).get("id"),
        "seed": job.seed,
        "torch": torch.__version__,
        **trainer.model_facts,
    }


def execution_for(job: Job, workload: Workload, world: int) -> Execution:
    """Return how a job runs: as planned, or data-parallel over all processes as the file asks."""
    if job.execution is not None:
        return job.execution
    return Execution(
        layout=Layout(data=world),
        precision=None,
        micro_batch=job.micro_batch or workload.default_micro_batch or _of_loader(workload) or 1,
    )


def _of_loader(workload: Workload) -> int | None:
    """Return the batch size of the file's own loader, which the model may have to open."""
    if workload.loader is None:
        return None
    workload.build_model()
    workload.make_batch(1)
    return workload.loader_batch_size()


def build_trainer(
    job: Job, workload: Workload, processes: Processes, *, begins_anew: bool = True
) -> Trainer:
    """Build the model and its optimizer as the job's plan says.

    Args:
        job: what is to be run.
        workload: the model file.
        processes: of the run.
        begins_anew: whether no checkpoint is read afterwards: pretrained weights are then.

    Raises:
        UsageError: the plan is for another model or another number of processes.
        NoFeasiblePlanError: the runner does not run such a plan.
    """
    execution = execution_for(job, workload, processes.world)
    mesh = make_mesh(execution.layout, processes)
    use_matmul_format(execution.precision)
    seed_everything(job.seed)
    one_copy = only_first_builds(job, execution, processes)
    is_empty = one_copy and not processes.is_first
    model = build_without_memory(workload) if is_empty else workload.build_model()
    parameters = sum(one.numel() for one in model.parameters())
    _check_model(job, workload, parameters)
    plan = completed_plan(model, tensor_plan_of(workload, model))
    _refuse_unrunnable(execution, model, plan)
    # On every process, since a loss that gathers from the others waits for all of them.
    warnings = loss_warnings(workload, model, execution, processes.device, everywhere=not one_copy)
    for warning in warnings:
        if processes.is_first:
            say(f"warning: {warning}")
    if execution.precision == "bf16":
        model = model.to(torch.bfloat16)
    if execution.frozen_precision == "bf16":
        cast_frozen(model, torch.bfloat16)
    names = names_of(model)
    weights = chosen_weights(job, workload)
    facts = model_facts(model, names, weights)
    blocks = sum(len(run.modules) for run in find_blocks(model))
    values = dict(model.state_dict()) if one_copy and not is_empty else None
    originals, resting = Originals(model), RestingModules(model)
    spreading = _spread(job, model, workload, execution, plan, mesh, processes)
    originals.hand_over()
    words = resting.words()
    if words is not None and processes.is_first:
        say(f"warning: {words}")
    if one_copy:
        hand_out(model, values)
    if weights is not None and begins_anew:
        load_pretrained(model, names, weights, processes)
    own = parameters_of(spreading.trained)
    forget_gradients(own)
    with empty_optimizers() if execution.layout.pipeline > 1 else nullcontext():
        optimizer = workload.build_optimizer(own)
    refuse_closures(optimizer)
    refuse_foreign(optimizer, own)
    tensor_parallel.step_by_mesh(optimizer)
    scaler = make_scaler(execution, processes.device)
    return Trainer(
        execution=execution,
        position=Position.of(execution.layout, processes.rank),
        model=model,
        optimizer=optimizer,
        scaler=scaler,
        step=Step(
            gradients=spreading.gradients,
            optimizer=optimizer,
            parameters=own,
            device=processes.device,
            execution=execution,
            scaler=scaler,
            clip_norm=job.clip_grad_norm,
            counted_elsewhere=spreading.counted_elsewhere,
        ),
        buffers=SharedBuffers(spreading.trained, mesh),
        parameters=parameters,
        model_facts=facts,
        blocks=blocks,
    )


@dataclass(frozen=True, kw_only=True)
class _Spreading:
    """A model spread over the processes."""

    gradients: Gradients
    trained: nn.Module
    """Holds this rank's parameters."""
    counted_elsewhere: list[nn.Parameter] = field(default_factory=list)


def _spread(
    job: Job,
    model: nn.Module,
    workload: Workload,
    execution: Execution,
    plan: Mapping[str, Any],
    mesh: DeviceMesh | None,
    processes: Processes,
) -> _Spreading:
    layout, device = execution.layout, processes.device
    cast = caster(execution, device)
    staged = mesh is not None and layout.pipeline > 1
    cut = (
        cut_into_stages(model, workload, execution, seed=job.seed, device=device)
        if staged
        else None
    )
    dropout: SplitDropout | None = None
    if mesh is not None and layout.tensor > 1:
        tensor_parallel.split_layers(
            model, plan, mesh["tensor"], sequence_parallel=layout.sequence_parallel
        )
        dropout = split_dropout(model, mesh["tensor"], compiled=execution.compile)
    recompute_blocks(
        model,
        execution.recompute,
        layers=execution.recompute_layers,
        parts=() if cut is None else cut.sizes,
    )
    if mesh is not None and cut is not None:
        gradients, trained, twice = staged_model(
            model, cut, workload, execution, mesh, processes, cast
        )
        if dropout is not None:
            dropout.rests = gradients.rests
        return _Spreading(gradients=gradients, trained=trained, counted_elsewhere=twice)
    compile_model(model, execution)
    if layout.zero_stage == 0:
        model.to(device)
    module = LossModule(model, workload.compute_loss, cast)
    # FSDP moves block after block to the device, so a model may be larger than one.
    trained = spread(module, block_modules(model), execution, mesh)
    is_empty = any(one.is_meta for one in trained.parameters())
    (trained.to_empty(device=device) if is_empty else trained.to(device)).train()
    weights = loss_weights(workload, layout, device)
    return _Spreading(gradients=WholeModel(trained, execution, weights), trained=trained)


def _check_model(job: Job, workload: Workload, parameters: int) -> None:
    if job.parameters is not None and parameters != job.parameters:
        raise UsageError(
            f"The plan is for a model of {job.parameters:,} parameters; {workload.name} has"
            f" {parameters:,}.",
            fix="give the model file and the --param values that the plan was made for, or make a"
            " plan for this model with `gpuplan estimate`.",
        )


def _refuse_unrunnable(execution: Execution, model: nn.Module, plan: Mapping[str, Any]) -> None:
    reason = why_not_runnable(
        execution.layout,
        precision=execution.precision,
        stack=execution.stack,
        grad_accum=execution.grad_accum,
        recompute=execution.recompute,
        offloaded=execution.offloaded,
        tensor_plan=tensor_plan_kind(plan),
        blocks=len(block_paths(model)) if block_modules(model) else 0,
        tied_modules=tied_modules(model, plan),
        tied_blocks=tied_blocks(model),
        frozen_precision=execution.frozen_precision,
    )
    if reason is not None:
        raise NoFeasiblePlanError(
            f"This plan is not run (runnable: false). {reason}",
            fix="choose another plan with `gpuplan estimate`, or your own script with --command.",
        )
