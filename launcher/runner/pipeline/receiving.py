"""A pipeline stage whose receive buffers live only while something is in them.

torch's stage makes them for every micro-batch of a step before the first one, and keeps them and
the gradients of what it received to the step's end (torch 2.13, distributed/pipelining/stage.py,
`_setup_forward_recv_info`, `_setup_backward_recv_info`, `clear_runtime_states`): three residual
streams for each micro-batch of a step, where 1F1B holds as many as there are stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed as dist
from torch.distributed.pipelining import PipelineStage


class ReceivingStage(PipelineStage):
    """Allocates a buffer when its neighbour is about to send, and drops it when it was used."""

    def _setup_forward_recv_info(self, num_microbatches: int, has_backward: bool) -> None:
        with self._without_memory():
            super()._setup_forward_recv_info(num_microbatches, has_backward)

    def _setup_backward_recv_info(self, num_microbatches: int) -> None:
        with self._without_memory():
            super()._setup_backward_recv_info(num_microbatches)

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Return what receives the input of a micro-batch."""
        self._allocate(self.args_recv_info[fwd_chunk_id])
        return super().get_fwd_recv_ops(fwd_chunk_id)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Return what receives the gradient of a micro-batch's output."""
        if self.has_backward and not self.is_last:
            self._allocate(self.grad_recv_info[bwd_chunk_id])
        return super().get_bwd_recv_ops(bwd_chunk_id)

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Run the forward pass of one micro-batch."""
        output = super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
        # The backward pass has its own reference to the input, whose gradient goes with it.
        _release(self.args_recv_info[fwd_chunk_id])
        return output

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        """Run the backward pass of one micro-batch."""
        super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
        if self.has_backward and not self.is_last:
            _release(self.grad_recv_info[bwd_chunk_id])

    @contextmanager
    def _without_memory(self) -> Iterator[None]:
        """Let torch make its buffers where they take no memory: they say what will be received."""
        device, self.device = self.device, torch.device("meta")
        try:
            yield
        finally:
            self.device = device

    def _allocate(self, received: tuple[Any, ...]) -> None:
        for one in received:
            if one.buffer is not None and one.buffer.is_meta:
                one.buffer = torch.empty_like(
                    one.buffer, device=self.device, requires_grad=one.buffer.requires_grad
                )


def _release(received: tuple[Any, ...]) -> None:
    for one in received:
        if one.buffer is not None and not one.buffer.is_meta:
            buffer = one.buffer
            one.buffer = torch.empty_like(buffer, device="meta", requires_grad=buffer.requires_grad)
