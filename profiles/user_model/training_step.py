"""A real training step of a workload: the model placed, cast and recomputed as a plan says."""

from __future__ import annotations

import functools
import gc
import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from ...catalog.errors import UsageError
from .checks import Batch
from .placing import placed
from .structure.blocks import find_blocks
from .workload import Workload

LOSS_SCALE = 2.0**10
"""First loss scale of fp16: torch's own default of 2^16 skips the first optimizer steps."""
SIXTEEN_BIT = {"bf16-amp": torch.bfloat16, "fp16-amp": torch.float16, "bf16": torch.bfloat16}
KEPT_OPERATIONS = (
    # What selective recompute keeps: the operations of `recompute.KEPT_KINDS`.
    *("mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "convolution"),
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
)
OUT_OF_MEMORY_WORDS = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")


class TrainingStep:
    """One training step as a plain training loop does it, on a batch that stays."""

    def __init__(
        self, workload: Workload, *, device: str, precision: str, micro_batch: int, recompute: str
    ) -> None:
        self._workload = workload
        self._device = device
        self._precision = precision
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        model = workload.build_model()
        if precision == "bf16":
            model = model.to(torch.bfloat16)
        self._model = model.to(device).train()
        recompute_blocks(self._model, recompute)
        self._optimizer = workload.build_optimizer(self._model.parameters())
        self._scaler = (
            torch.amp.GradScaler(device, init_scale=LOSS_SCALE) if precision == "fp16-amp" else None
        )
        self._batch: Batch | None = None
        self.use_micro_batch(micro_batch)

    def use_micro_batch(self, samples: int) -> None:
        """Take a batch of this size from now on."""
        self._batch = None
        dtype = torch.bfloat16 if self._precision == "bf16" else None
        self._batch = placed(self._workload.make_batch(samples), self._device, dtype)

    def __call__(self) -> None:
        """Run the whole step."""
        loss = self._forward()
        (self._scaler.scale(loss) if self._scaler else loss).backward()
        del loss
        if self._scaler:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        else:
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def forget(self) -> None:
        """Drop what a step that failed half-way left: its gradients, its batch, its graph."""
        self._batch = None
        self._optimizer.zero_grad(set_to_none=True)
        gc.collect()
        if self._device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()

    def _forward(self) -> Tensor:
        assert self._batch is not None
        cast = (
            torch.autocast(self._device, SIXTEEN_BIT[self._precision])
            if self._precision.endswith("-amp")
            else nullcontext()
        )
        with cast:
            return self._workload.compute_loss(self._model, self._batch)


def recompute_blocks(
    model: nn.Module, recompute: str, *, layers: int | None = None, parts: Sequence[int] = ()
) -> None:
    """Let repeated blocks run again in the backward pass.

    Args:
        model: the whole one.
        recompute: none, selective or full.
        layers: how many blocks of the model run again; None for all.
        parts: how many blocks each part of a pipeline runs, in order; of each the same share runs
            again, the first ones, rounded up to whole blocks. Empty where the model is not cut.

    Raises:
        UsageError: recompute is asked for, and the model repeats no block.
    """
    if recompute == "none":
        return
    blocks = [block for run in find_blocks(model) for block in run.modules]
    if not blocks:
        raise UsageError(
            f"--recompute {recompute} recomputes repeated blocks, and this model has none.",
            fix="leave --recompute out.",
        )
    how: dict[str, Any] = {"use_reentrant": False}
    if recompute == "selective":
        packets = [getattr(torch.ops.aten, name, None) for name in KEPT_OPERATIONS]
        kept = [packet.default for packet in packets if packet is not None]
        how["context_fn"] = functools.partial(create_selective_checkpoint_contexts, kept)
    for block in _first_of_each(blocks, layers, parts or (len(blocks),)):
        block.forward = functools.partial(checkpoint, block.forward, **how)


def _first_of_each(
    blocks: Sequence[nn.Module], layers: int | None, parts: Sequence[int]
) -> Iterator[nn.Module]:
    """Yield the blocks that run again: so many of all, the first ones of each part."""
    share = 1.0 if layers is None else min(1.0, layers / len(blocks))
    begin = 0
    for size in parts:
        # A share such as 8/24 of 24 blocks is a whole number but for rounding.
        yield from blocks[begin : begin + math.ceil(share * size - 1e-9)]
        begin += size


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the device, the host or a library had no memory left.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    True
    >>> is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    False
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        words in str(error) for words in OUT_OF_MEMORY_WORDS
    )
