"""A model as pipeline stages, each spread over its data-parallel ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from ....profiles.user_model.checks import Batch
from ....profiles.user_model.placing import placed
from ....profiles.user_model.workload import Workload
from ..input.samples import seed_everything
from ..job import Execution
from ..pipeline.passes import StagedPass
from ..pipeline.schedule import PipelineSchedule, StageCut, build_stages, cut_model, make_schedule
from ..processes.processes import Processes
from ..training.loss_weights import LossWeights, loss_weights
from ..training.numerics import input_dtype
from ..training.step import Mark
from .parallelize import compile_blocks, spread


class StagedModel:
    """Gradients of a model of which this rank runs one stage, or several interleaved ones."""

    def __init__(
        self, schedule: PipelineSchedule, passes: StagedPass, weights: LossWeights | None = None
    ) -> None:
        self._schedule = schedule
        self.passes = passes
        """Runs functions of the whole model without gradients."""
        self._weights = weights

    def __call__(self, batches: Sequence[Batch], scale: Tensor | None, mark: Mark) -> Tensor | None:
        """Return the mean loss of the micro-batches on the last stage, None on the others.

        Forward and backward passes of several micro-batches interleave, so they are one part.
        """
        parts = None if self._weights is None else self._weights.parts(batches)
        loss = self._schedule.run(batches, 1.0 if scale is None else scale, parts=parts)
        mark("forward and backward")
        return loss

    def rests(self) -> bool:
        """Return whether what the stages compute now, if anything, is no micro-batch of a step."""
        return not self._schedule.trains


class Stages(nn.ModuleList):
    """The stages of one rank, to find all of their parameters."""


def cut_into_stages(
    model: nn.Module,
    workload: Workload,
    execution: Execution,
    *,
    seed: int,
    device: torch.device,
) -> StageCut:
    """Return where a model is cut; before anything about it is split, compiled or recomputed."""
    seed_everything(seed)
    # Here the weights are still as they were built: FSDP's are 16-bit only while it gathers them.
    dtype = torch.bfloat16 if execution.precision == "bf16" else None
    example = placed(workload.make_batch(execution.micro_batch), "cpu", dtype)
    stages = execution.layout.pipeline * execution.layout.virtual_stages
    return cut_model(workload.compute_loss, model, example, stages, device=device)


def staged_model(
    model: nn.Module,
    cut: StageCut,
    workload: Workload,
    execution: Execution,
    mesh: DeviceMesh,
    processes: Processes,
    cast: Callable[[], AbstractContextManager[Any]],
) -> tuple[StagedModel, nn.Module, list[nn.Parameter]]:
    """Return (what computes gradients, this rank's stages, weights counted on another rank too)."""
    device: torch.device = processes.device
    modules = build_stages(
        cut,
        workload.compute_loss,
        model,
        rank=mesh.get_local_rank("pipeline"),
        ranks=execution.layout.pipeline,
        device=device,
        dtype=input_dtype(execution),
        cast=cast,
    )
    for one in modules:
        compile_blocks(one.pipeline_blocks, execution)
    trained = [spread(one, one.pipeline_blocks, execution, mesh) for one in modules]
    group = mesh["pipeline"].get_group()
    schedule = make_schedule(trained, group, device, execution.grad_accum)
    stages = Stages(trained)
    stages.train()
    weights = loss_weights(workload, execution.layout, device)
    passes = StagedPass(trained, modules, group, device)
    return StagedModel(schedule, passes, weights), stages, schedule.tied_copies()
