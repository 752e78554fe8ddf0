"""The model as the layout says: DDP, FSDP, HSDP, ZeRO and tensor parallelism, all torch's own.

The loss is computed inside one module (`LossModule`), and that is what is wrapped. So the user's
model keeps its class and its methods, whatever compute_loss calls on it.

| layout | how |
|---|---|
| dp | DistributedDataParallel; beside tensor or pipeline ranks, FSDP's replicas without shards |
| zero1 | fully_shard that reshards after the step; gradients stay whole until the last one |
| zero2 | the same, but every micro-batch scatters its gradients |
| fsdp | fully_shard of every repeated block and of the rest; of stages gathered once a step |
| hsdp | the same on a mesh of replicas x shards |
| tp, sp | parallelize_module by the model's own plan |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from ....catalog.errors import UserFileError
from ....profiles.user_model.checks import Batch
from ....profiles.user_model.structure.blocks import find_blocks
from ..job import Execution
from ..training.numerics import fsdp_policy
from .split_dropout import split_backend

LossFunction = Callable[[nn.Module, Batch], Tensor]
USUAL_BACKEND = "inductor"
"""Of `torch.compile`, where none is named."""


class LossModule(nn.Module):
    """The user's model and loss as one module: a batch goes in, the loss comes out."""

    def __init__(
        self,
        model: nn.Module,
        compute_loss: LossFunction,
        cast: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        super().__init__()
        self.model = model
        self._compute_loss = compute_loss
        self._cast = cast
        self._measure: Callable[[nn.Module, Batch], Any] | None = None

    def forward(self, batch: Batch) -> Any:
        """Return the loss of one micro-batch; inside `measured`, what is measured of it."""
        with self._cast():
            return (self._measure or self._compute_loss)(self.model, batch)

    knows = True
    """Whether what a function finds is right on this rank."""

    def measured(self, batch: Batch, measure: Callable[[nn.Module, Batch], Any]) -> Any:
        """Return what a function finds of a batch.

        Called as the loss is, so that FSDP gathers what the model needs.
        """
        self._measure = measure
        try:
            return self(batch)
        finally:
            self._measure = None


def block_modules(model: nn.Module) -> list[nn.Module]:
    """Return the repeated blocks of a model, which are sharded and compiled one by one.

    Of a block that is a list of modules (the levels of many a U-Net) its members: nobody calls the
    list, which `fully_shard` refuses and a compiler does not see.
    """
    blocks = (block for run in find_blocks(model) for block in run.modules)
    return [called for block in blocks for called in _called(block)]


def _called(block: nn.Module) -> Iterator[nn.Module]:
    is_list = isinstance(block, nn.ModuleList | nn.ModuleDict)
    if not is_list or type(block).forward is not nn.Module.forward:
        yield block
        return
    for member in block.children():
        if any(True for _ in member.parameters()):
            yield from _called(member)


def compile_model(model: nn.Module, execution: Execution) -> None:
    """Compile a model in place: whole, or block by block where FSDP or tensors cut between them."""
    if not execution.compile:
        return
    layout = execution.layout
    if layout.zero_stage > 0 or layout.tensor > 1:
        compile_blocks(block_modules(model), execution)
    else:
        compile_in_place(model)


def compile_blocks(blocks: Sequence[nn.Module], execution: Execution) -> None:
    """Compile blocks in place, one by one, if the plan compiles."""
    backend = split_backend() if execution.layout.tensor > 1 else USUAL_BACKEND
    for block in blocks if execution.compile else ():
        compile_in_place(block, backend)


def compile_in_place(module: nn.Module, backend: str | Callable[..., Any] = USUAL_BACKEND) -> None:
    """Compile a module, which keeps its class and the names of its parameters.

    `Module.compile` leaves the code of torch's own modules out, and so all of an nn.Sequential or
    a TransformerEncoderLayer: it begins with the module's call, which torch's compiler skips, and
    then with the next function that is not torch's. Their forward is compiled itself.
    """
    if type(module).forward.__module__.partition(".")[0] == "torch":
        module.forward = torch.compile(module.forward, backend=backend)
    else:
        module.compile(backend=backend)


def spread(
    module: nn.Module,
    blocks: Sequence[nn.Module],
    execution: Execution,
    mesh: DeviceMesh | None,
) -> nn.Module:
    """Return a module whose gradients are those of all data-parallel ranks.

    Args:
        module: computes the loss, or one pipeline stage; on its device.
        blocks: the repeated blocks inside it.
        execution: the layout, and the precision that FSDP gathers in.
        mesh: of the layout; None for one process.
    """
    layout = execution.layout
    if mesh is None or layout.data == 1:
        return module
    alone = layout.tensor == layout.pipeline == 1
    if layout.zero_stage == 0 and alone:
        return SteadyDDP(module)
    # With one rank per shard, FSDP's replicas are data parallelism that knows of tensor shards.
    names = ("replicate", "shard") if layout.replicas > 1 else "shard"
    how: dict[str, Any] = {
        "mesh": mesh[names],
        "mp_policy": fsdp_policy(execution),
    }
    # torch's pipelines gather again only what forward freed, and keep it after the first backward:
    # as much is held as where nothing is freed, and more is sent (`backward_maybe_with_nosync`).
    frees = layout.zero_stage == 3 and layout.pipeline == 1
    for block in blocks:
        fully_shard(block, reshard_after_forward=frees, **how)
    # The rest is needed first in the backward pass: it stays whole, as the planner predicts.
    fully_shard(module, reshard_after_forward=False, **how)
    return module


class SteadyDDP(nn.Module):
    """DDP that finds out by itself whether the loss leaves parameters out.

    DDP waits for a gradient of every parameter unless it is told to look for those that get none,
    which costs a walk over the graph in every step; what it does not wait for stays unreduced. So
    one pass before the first tells it.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inner = module
        self._wrapped: DistributedDataParallel | None = None

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss of one micro-batch.

        Raises:
            UserFileError: which parameters the loss leaves out changes from step to step.
        """
        try:
            return self._ready(batch)(batch)
        except RuntimeError as error:
            if "Expected to have finished reduction" not in str(error):
                raise
        raise UserFileError(
            "The loss leaves out parameters in some steps and not in others, which data-parallel"
            " replicas (DDP) cannot follow.",
            fix="use every parameter in every step, or choose a plan with fsdp or zero1.",
        )

    def without_sync(self, batch: Batch) -> AbstractContextManager[Any]:
        """Return the context in which gradients stay on their rank."""
        return self._ready(batch).no_sync()

    def _ready(self, batch: Batch) -> DistributedDataParallel:
        if self._wrapped is None:
            wrapped = DistributedDataParallel(
                self.inner,
                gradient_as_bucket_view=True,
                find_unused_parameters=leaves_parameters_out(self.inner, batch),
            )
            # Not registered: its parameters are the inner module's.
            object.__setattr__(self, "_wrapped", wrapped)
            return wrapped
        return self._wrapped


def leaves_parameters_out(module: nn.Module, batch: Batch) -> bool:
    """Return whether, on any rank, some trainable parameter gets no gradient.

    Runs one forward and backward pass that leaves nothing behind: no gradients, no statistics of
    norms, no random numbers drawn.
    """
    kept = [buffer.clone() for buffer in module.buffers()]
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices), torch.compiler.set_stance("force_eager"):
        module(batch).backward()
    trained = [one for one in module.parameters() if one.requires_grad]
    found = torch.tensor(float(any(one.grad is None for one in trained)), device=trained[0].device)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    for one in trained:
        one.grad = None
    with torch.no_grad():
        for buffer, value in zip(module.buffers(), kept, strict=True):
            buffer.copy_(value)
    return bool(found.item())


@contextmanager
def micro_batch_sync(
    module: nn.Module, execution: Execution, batch: Batch, *, is_last: bool
) -> Iterator[None]:
    """Reduce gradients in this micro-batch only if the layout needs it now.

    DDP and ZeRO-1 reduce once a step. FSDP and ZeRO-2 scatter the gradients of every micro-batch,
    since nothing holds whole ones; HSDP adds its replicas up only in the last. Every backward pass
    ends as the last one does: FSDP would keep the root's whole gradients, as they were sent, until
    the next micro-batch's backward pass has gone through a block (`set_is_last_backward`).
    """
    quiet: AbstractContextManager[Any] = nullcontext()
    if isinstance(module, SteadyDDP) and not is_last:
        quiet = module.without_sync(batch)
    if isinstance(module, FSDPModule):
        whole_gradients = execution.layout.zero_stage < 2
        module.set_requires_gradient_sync(is_last or not whole_gradients)
        module.set_requires_all_reduce(is_last)
        if execution.layout.zero_stage < 3:
            module.set_reshard_after_backward(is_last)
    with quiet:
        yield


def parameters_of(module: nn.Module) -> list[nn.Parameter]:
    """Return the trainable parameters that this rank updates, each once."""
    return [one for one in module.parameters() if one.requires_grad]


def as_float(value: Tensor) -> float:
    """Return the number in a tensor of one element, which waits for the device."""
    return float(value.detach().to("cpu", torch.float64))
