"""Pipeline parallelism of any model whose repeated blocks run one after the other.

    cut = cut_model(workload.compute_loss, model, workload.make_batch(micro_batch), stages)
    modules = build_stages(cut, workload.compute_loss, model, rank=…, ranks=…, device=…)
    …                                   # fully_shard, compile or recompute each pipeline_blocks
    schedule = make_schedule(modules, group, device, n_micro_batches=…)
    loss = schedule.run(micro_batches)  # then the optimizer's step

The schedules are those of torch.distributed.pipelining. How a stage runs its part of the user's
own forward pass is told in `pipeline_stage.py`, and which models can be cut in
`pipeline_record.py`. Every rank of a pipeline gets the same micro-batches, all of one shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from ....catalog.errors import GpuplanError, UsageError
from ....profiles.user_model.checks import Batch
from .blocks import block_paths
from .cut import StageCut, cut_model
from .receiving import ReceivingStage
from .stage import Feed, StageModule, build_stages, trainable

__all__ = [
    "PipelineSchedule",
    "StageCut",
    "StageModule",
    "block_paths",
    "build_stages",
    "cut_model",
    "make_schedule",
]
Kind = Literal["1f1b", "gpipe"]


def make_schedule(
    stages: Sequence[nn.Module],
    group: dist.ProcessGroup,
    device: torch.device,
    n_micro_batches: int,
    *,
    kind: Kind = "1f1b",
) -> PipelineSchedule:
    """Return the schedule of one rank's stages; several stages are interleaved.

    Args:
        stages: of `build_stages`, in order, each as it is, after `fully_shard`, or inside DDP.
        group: the ranks of this pipeline, in the order of their stages.
        device: where the stages run.
        n_micro_batches: of one step (gradient-accumulation steps).
        kind: "1f1b" (interleaved with several stages a rank) or "gpipe".

    Raises:
        UsageError: the schedule cannot run this number of micro-batches.
    """
    ranks, virtual = dist.get_world_size(group), len(stages)
    if kind == "gpipe" and virtual > 1:
        raise UsageError(
            f"GPipe runs one stage on each rank, not {virtual}.",
            fix="leave virtual stages out, or use 1F1B.",
        )
    if kind == "1f1b" and n_micro_batches < ranks:
        raise UsageError(
            f"{n_micro_batches} micro-batches do not fill {ranks} pipeline stages.",
            fix=f"use {ranks} gradient-accumulation steps or more.",
        )
    if virtual > 1 and n_micro_batches % ranks:
        raise UsageError(
            f"Interleaved stages take micro-batches in groups of {ranks}, and {n_micro_batches}"
            " are not a multiple of it.",
            fix=f"use a multiple of {ranks} gradient-accumulation steps, or no virtual stages.",
        )
    return PipelineSchedule(stages, group, device, n_micro_batches, kind)


class PipelineSchedule:
    """Forward and backward of all micro-batches of one step, on one rank's stages.

    In the first step torch runs one micro-batch more, to learn the shapes that travel; it leaves no
    gradients and does not move the random numbers, but batch norm counts it.
    """

    def __init__(
        self,
        stages: Sequence[nn.Module],
        group: dist.ProcessGroup,
        device: torch.device,
        n_micro_batches: int,
        kind: Kind,
    ) -> None:
        self.n_micro_batches = n_micro_batches
        self._group = group
        self._modules = [_unwrapped(stage) for stage in stages]
        self._shapes: list[Any] | None = None
        made = [
            _Stage(stage, module, device, group)
            for stage, module in zip(stages, self._modules, strict=True)
        ]
        # The loss is scaled where it is computed, so torch is not to scale gradients again.
        how: dict[str, Any] = {
            "n_microbatches": n_micro_batches,
            "loss_fn": _own_loss,
            "scale_grads": False,
        }
        self._schedule: ScheduleInterleaved1F1B | Schedule1F1B | ScheduleGPipe
        if len(made) > 1:
            self._schedule = ScheduleInterleaved1F1B(list(made), **how)
        else:
            self._schedule = (Schedule1F1B if kind == "1f1b" else ScheduleGPipe)(made[0], **how)

    def run(
        self,
        micro_batches: Sequence[Batch],
        scale: Tensor | float = 1.0,
        *,
        parts: Sequence[Tensor | float] | None = None,
    ) -> Tensor | None:
        """Add up the gradients of one step: of the mean loss over the micro-batches, times `scale`.

        Call it once between two steps of the optimizer: weights that the first and the last stage
        share get the sum of both gradients at its end.

        Args:
            micro_batches: of the step.
            scale: of the gradients.
            parts: what each micro-batch's loss counts; None where all count alike.

        Returns:
            The mean loss, unscaled, on the rank of the last stage; None on the others.

        Raises:
            UsageError: a micro-batch has another shape than those before it.
        """
        if len(micro_batches) != self.n_micro_batches:
            raise ValueError(f"{len(micro_batches)} micro-batches, not {self.n_micro_batches}")
        self._check_shapes(micro_batches)
        count = self.n_micro_batches
        factors = [scale / count] * count if parts is None else [scale * one for one in parts]
        feeds = [Feed(micro_batches, factors) for _ in self._modules]
        for module, feed in zip(self._modules, feeds, strict=True):
            module.pipeline_feed = feed
        try:
            self._schedule.step(target=torch.zeros(self.n_micro_batches), return_outputs=False)
        except RuntimeError as error:
            if isinstance(error.__cause__, GpuplanError):
                raise error.__cause__ from None
            raise
        finally:
            for module in self._modules:
                module.pipeline_feed = None
        self._add_tied_gradients()
        losses = {number: loss for feed in feeds for number, loss in feed.losses.items()}
        if not losses:
            return None
        if parts is None:
            return torch.stack([loss.reshape(()) for loss in losses.values()]).mean()
        return torch.stack([one.reshape(()) * parts[at] for at, one in losses.items()]).sum()

    @property
    def trains(self) -> bool:
        """Return whether a micro-batch of a step is being computed."""
        return any(one.pipeline_trains for one in self._modules)

    def tied_copies(self) -> list[nn.Parameter]:
        """Return the last stage's copies of weights that the first stage holds too.

        Their gradients are the same on both ranks, so a norm over the model counts one of them.
        """
        module = self._modules[-1]
        return self._tied(module) if _is_last(module) and not _is_first(module) else []

    def _tied(self, module: StageModule) -> list[nn.Parameter]:
        return trainable(module, module.pipeline_cut.tied)

    def _add_tied_gradients(self) -> None:
        ranks = dist.get_world_size(self._group)
        for module in self._modules if ranks > 1 else []:
            if _is_first(module) or _is_last(module):
                other = ranks - 1 if _is_first(module) else 0
                for parameter in self._tied(module):
                    self._add_gradient_of(parameter, other)

    def _add_gradient_of(self, parameter: nn.Parameter, other: int) -> None:
        """Add the gradient that another rank of the pipeline has for the same weight."""
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        gradient = parameter.grad
        if isinstance(gradient, DTensor) and isinstance(parameter, DTensor):
            # Of an embedding alone, or a head alone, it may be split otherwise than of the other.
            gradient = gradient.redistribute(placements=parameter.placements)
            parameter.grad = gradient
        own = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        sent = own.contiguous()
        received = torch.empty_like(sent)
        # An exchange between two ranks needs no group of its own, and a + b is b + a to the bit.
        exchange = [
            dist.P2POp(dist.isend, sent, group=self._group, group_peer=other),
            dist.P2POp(dist.irecv, received, group=self._group, group_peer=other),
        ]
        for work in dist.batch_isend_irecv(exchange):
            work.wait()
        own.add_(received)

    def _check_shapes(self, micro_batches: Sequence[Batch]) -> None:
        for batch in micro_batches:
            shapes = [tuple(x.shape) for x in tree_leaves(batch) if isinstance(x, Tensor)]
            self._shapes = self._shapes or shapes
            if shapes != self._shapes:
                raise UsageError(
                    f"A micro-batch has the shapes {shapes}, those before it {self._shapes};"
                    " pipeline stages exchange tensors of one size.",
                    fix="pad samples to one length, and drop the last incomplete batch.",
                )


class _Stage(ReceivingStage):
    """Tells the stage's module which micro-batch comes, as a number that no device ever sees."""

    def __init__(
        self,
        submodule: nn.Module,
        module: StageModule,
        device: torch.device,
        group: dist.ProcessGroup,
    ) -> None:
        stages = module.pipeline_cut.stages
        super().__init__(submodule, module.pipeline_stage, stages, device, group=group)
        self._module = module

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Run the forward pass of one micro-batch."""
        feed = self._module.pipeline_feed
        assert feed is not None, "run() gives it"
        feed.number, feed.is_trained_on = fwd_chunk_id, True
        return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)


def _own_loss(output: Tensor, _target: Tensor) -> Tensor:
    return output


def _unwrapped(stage: nn.Module) -> StageModule:
    module = stage.module if isinstance(stage, DistributedDataParallel) else stage
    if not isinstance(module, StageModule):
        raise TypeError(f"{type(module).__name__} is not a stage of build_stages()")
    return module


def _is_first(module: StageModule) -> bool:
    return module.pipeline_stage == 0


def _is_last(module: StageModule) -> bool:
    return module.pipeline_stage == module.pipeline_cut.stages - 1
