"""A function of the user's on a model of which every rank has some stages, without gradients.

Every stage runs all of it on the same batch, as in training (`stage.py`), but to its end: blocks of
other stages are skipped, and the hidden state goes from who computed it to who needs it next. What
the function returns is right on the rank of the last stage alone, since only there the head has its
weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.utils._pytree import tree_leaves

from ....catalog.errors import UserFileError
from ....profiles.user_model.checks import Batch
from .blocks import first_tensor, with_tensor
from .stage import StageModule

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
MOST_DIMENSIONS = 8
ALIKE = 1e-9


class StagedPass(nn.Module):
    """Runs functions of the whole model over the stages of all ranks."""

    def __init__(
        self,
        trained: Sequence[nn.Module],
        stages: Sequence[StageModule],
        group: dist.ProcessGroup,
        device: torch.device,
    ) -> None:
        """Prepare it.

        Args:
            trained: this rank's stages, as they are spread over its data-parallel ranks.
            stages: the same, without what spreads them.
            group: the ranks of this pipeline, in the order of their stages.
            device: where tensors travel.
        """
        super().__init__()
        self.trained = nn.ModuleList(trained)
        self._first, self._group, self._device = stages[0], group, device
        self._ranks, self._rank = dist.get_world_size(group), dist.get_rank(group)
        cut = stages[0].pipeline_cut
        owners = {index: stage for stage in range(cut.stages) for index in cut.blocks_of(stage)}
        self._owners = {-1: 0, **owners, len(cut.paths): cut.stages - 1}
        """Stage of each block, and of what comes before and behind them."""
        self._depth = 0

    @property
    def knows(self) -> bool:
        """Whether what a function returns is right on this rank."""
        return self._rank == self._ranks - 1

    def measured(self, batch: Batch, measure: Callable[[nn.Module, Batch], Any]) -> Any:
        """Return what a function finds of a batch; every rank of the pipeline calls it.

        Raises:
            UserFileError: it calls the model on what the model gave, which not all ranks know.
        """
        stage = self._first
        for one in self.trained:
            if isinstance(one, FSDPModule):
                one.unshard()
        with self._checked_calls(), stage.pipeline_acting(self._enter):
            return measure(stage.pipeline_model, batch)

    def _owner(self, index: int) -> int:
        return self._owners[index] % self._ranks

    def _enter(
        self, index: int, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        cut = self._first.pipeline_cut
        given = first_tensor(args, kwargs)
        assert given is not None, "the recorded run gave it one"
        before, own, behind = (self._owner(one) for one in (index - 1, index, index + 1))
        if index == 0 and self._rank == before != own:
            self._send(given, own)
        if self._rank == own:
            if before != own:
                args, kwargs = with_tensor((args, kwargs), given, self._receive(before))
            output = call(*args, **kwargs)
            if behind != own:
                self._send(cut.outputs[index].hidden_of(output), behind)
            return output
        if index + 1 == len(cut.paths) and self._rank == behind:
            given = self._receive(own)
        return cut.outputs[index].around(given)

    def _send(self, hidden: Tensor, rank: int) -> None:
        shape = (*hidden.shape, *[0] * (MOST_DIMENSIONS - hidden.dim()))
        form = torch.tensor([DTYPES.index(hidden.dtype), hidden.dim(), *shape], device=self._device)
        dist.send(form, group=self._group, group_dst=rank)
        dist.send(hidden.contiguous(), group=self._group, group_dst=rank)

    def _receive(self, rank: int) -> Tensor:
        form = torch.empty(MOST_DIMENSIONS + 2, dtype=torch.int64, device=self._device)
        dist.recv(form, group=self._group, group_src=rank)
        dtype, dimensions, *shape = form.tolist()
        hidden = torch.empty(shape[:dimensions], dtype=DTYPES[dtype], device=self._device)
        dist.recv(hidden, group=self._group, group_src=rank)
        return hidden

    @contextmanager
    def _checked_calls(self) -> Iterator[None]:
        """Compare what the model, or what holds its blocks, is called on inside."""
        model, path = self._first.pipeline_model, self._first.pipeline_cut.paths[0]
        parts = path.split(".")[:-1]
        holders = [model.get_submodule(".".join(parts[:end])) for end in range(len(parts) + 1)]

        def enter(_module: nn.Module, args: Any, kwargs: Any) -> None:
            self._depth += 1
            if self._depth == 1:
                self._compare((args, kwargs))

        def leave(*_: Any) -> None:
            self._depth -= 1

        with ExitStack() as hooks:
            for one in holders:
                # The first to be called and the last to be left.
                hooks.callback(
                    one.register_forward_pre_hook(enter, with_kwargs=True, prepend=True).remove
                )
                hooks.callback(one.register_forward_hook(leave, always_call=True).remove)
            yield

    def _compare(self, given: Any) -> None:
        """Refuse what is not the same on all ranks; collective."""
        own = [
            one.detach().double().nan_to_num().sum()
            for one in tree_leaves(given)
            if isinstance(one, Tensor)
        ]
        total = torch.stack([one.to(self._device) for one in own]).sum() if own else torch.zeros(())
        both = torch.stack([total, -total]).to(self._device, torch.float64)
        dist.all_reduce(both, dist.ReduceOp.MAX, group=self._group)
        largest, smallest = both[0].item(), -both[1].item()
        if largest - smallest > ALIKE * max(abs(largest), abs(smallest)):
            raise UserFileError(
                "compute_metrics() calls the model, or a part of it, on what the model gave, which"
                " only the last pipeline stage knows.",
                fix="call the whole model on the batch alone, or choose a plan without pipeline"
                " stages.",
            )
