"""Precision as the plan says: 16-bit layers, autocast, the loss scale, the norm of gradients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor, Replicate

from ....planner.plan.layout import Layout
from ....profiles.user_model.training_step import LOSS_SCALE, SIXTEEN_BIT
from ..job import Execution


def use_matmul_format(precision: str | None) -> None:
    """Let fp32 matrix products run in TF32 or not; None leaves it to the file."""
    if precision is not None:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"


def runs_sixteen_bit_layers(execution: Execution) -> bool:
    """Return whether mixed precision is FSDP's own: 16-bit layers with fp32 shards behind them.

    The planner predicts the same (`planner/software/stack.py`): FSDP, and ZeRO-2 which is
    FSDP that does not reshard, gather 16-bit weights; everything else runs under autocast.
    """
    layout, precision = execution.layout, execution.precision or ""
    return precision.endswith("-amp") and layout.zero_stage in (2, 3) and layout.shard > 1


def input_dtype(execution: Execution) -> torch.dtype | None:
    """Return the dtype of a batch's floating-point tensors; None where they keep their own.

    Layers that are 16-bit themselves take 16-bit inputs; autocast casts where it is needed.
    """
    if execution.precision == "bf16" or runs_sixteen_bit_layers(execution):
        return SIXTEEN_BIT[execution.precision or ""]
    return None


def fsdp_policy(execution: Execution) -> MixedPrecisionPolicy:
    """Return in what FSDP gathers weights and reduces gradients."""
    if not runs_sixteen_bit_layers(execution):
        return MixedPrecisionPolicy()
    dtype = SIXTEEN_BIT[execution.precision or ""]
    reduced = torch.bfloat16 if execution.reduce_dtype == "bf16" else torch.float32
    return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=reduced)


def caster(execution: Execution, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """Return what gives the context in which a forward pass runs."""
    precision = execution.precision or ""
    if not precision.endswith("-amp") or runs_sixteen_bit_layers(execution):
        return nullcontext
    return partial(torch.autocast, device.type, SIXTEEN_BIT[precision])


def make_scaler(execution: Execution, device: torch.device) -> LossScaler | None:
    """Return the loss scale of fp16; every other precision needs none."""
    if execution.precision != "fp16-amp":
        return None
    return LossScaler(device.type, init_scale=LOSS_SCALE)


class LossScaler(torch.amp.GradScaler):
    """GradScaler for sharded gradients: an overflow on one rank skips the step on every rank."""

    _found: Tensor | None = None

    @property
    def skipped_step(self) -> bool:
        """Whether the last step changed no weight; reads what the step has waited for already."""
        return self._found is not None and bool(self._found.item())

    def _unscale_grads_(
        self,
        optimizer: torch.optim.Optimizer,
        inv_scale: Tensor,
        found_inf: Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, Tensor]:
        gradients = [
            gradient._local_tensor if isinstance(gradient, DTensor) else gradient
            for group in optimizer.param_groups
            for parameter in group["params"]
            if (gradient := parameter.grad) is not None
        ]
        if gradients:
            torch._amp_foreach_non_finite_check_and_unscale_(  # pyright: ignore[reportPrivateImportUsage]
                gradients, found_inf, inv_scale
            )
        if dist.is_initialized():
            dist.all_reduce(found_inf, dist.ReduceOp.MAX)
        self._found = found_inf
        return {found_inf.device: found_inf}


def all_finite(parameters: Iterable[nn.Parameter], device: torch.device) -> bool:
    """Return whether every weight is a finite number on every rank, the same on all of them.

    Reads each weight once and waits for the device, so it is for checkpoints, not for every step.

    Args:
        parameters: of this rank.
        device: where ranks exchange numbers.
    """
    largest = [
        torch.linalg.vector_norm(local.detach(), float("inf")).float()
        for one in parameters
        if (local := one.to_local() if isinstance(one, DTensor) else one).numel()
    ]
    # The largest of several numbers is NaN where one of them is.
    found = torch.stack(largest).max() if largest else torch.zeros(())
    bad = (~found.isfinite()).to(device, torch.float32)
    if dist.is_initialized():
        dist.all_reduce(bad, dist.ReduceOp.MAX)
    return bad.item() == 0


def clip_gradients(
    parameters: Iterable[nn.Parameter],
    layout: Layout,
    norm: float,
    *,
    counted_elsewhere: Collection[nn.Parameter] = (),
) -> Tensor:
    """Scale gradients so that their norm over the whole model is at most `norm`; return the norm.

    Each rank sums the squares of what it holds, divided by how many ranks hold the same: the sum
    over all ranks is then every element once, whatever mixture of shards, replicas and stages.

    Args:
        parameters: of this rank.
        layout: says how many ranks hold the same.
        norm: largest allowed.
        counted_elsewhere: those of them that another pipeline stage holds and counts too.
    """
    parameters = list(parameters)
    for one in parameters:
        _add_up(one)
    held = [one.grad for one in parameters if one.grad is not None]
    elsewhere = {id(one.grad) for one in counted_elsewhere}
    device = held[0].device if held else torch.device("cpu")
    total = torch.zeros((), dtype=torch.float32, device=device)
    for gradient in held:
        if id(gradient) in elsewhere:
            continue
        local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        total += local.detach().float().square().sum() / _copies(gradient, layout)
    if dist.is_initialized():
        dist.all_reduce(total)
    found = total.sqrt()
    factor = (norm / (found + 1e-6)).clamp(max=1.0)
    for gradient in held:
        local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        local.mul_(factor.to(local.dtype))
    return found


def _add_up(parameter: nn.Parameter) -> None:
    """Add up a gradient of which each rank holds a summand, such as of norms on split sequences."""
    gradient = parameter.grad
    if isinstance(gradient, DTensor) and any(one.is_partial() for one in gradient.placements):
        whole = [Replicate() if one.is_partial() else one for one in gradient.placements]
        parameter.grad = gradient.redistribute(placements=whole)


def _copies(gradient: Tensor, layout: Layout) -> int:
    """Return how many ranks of the gradient's pipeline stage hold the same elements."""
    ranks = layout.data * layout.tensor
    if not isinstance(gradient, DTensor):
        return ranks
    splits = 1
    for size, placement in zip(gradient.device_mesh.shape, gradient.placements, strict=True):
        if not placement.is_replicate():
            splits *= size
    return max(1, ranks // splits)
