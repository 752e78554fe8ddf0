"""A step whose cross-entropy is one kernel, derived from the step that writes it out.

Written out in torch, a 16-bit model's loss holds four tensors of one value per token and vocabulary
entry: the logits, their fp32 copy, its log-softmax, and one fp32 gradient per operation of the
backward pass. Kernels for it hold less:

- "one kernel": logits are read once and again in the backward pass, which writes their gradient
  (flash_attn/ops/triton/cross_entropy.py; what Inductor makes of the written-out form).
- "one kernel beside zeros": the same where the compiled model returns its logits, which nobody uses
  further: autograd makes their gradient of zeros before the backward pass begins
  (`set_materialize_grads`, on by default), to which the kernel adds that of the loss.
- "softmax kept": the softmax is kept in fp32 and becomes the gradient in place (Megatron-LM of
  2020-22, megatron/mpu/cross_entropy.py).
- "softmax in place": the fp32 copy of the logits becomes the softmax in place, too (Megatron-LM
  core/tensor_parallel/cross_entropy.py). Transformer Engine's kernel holds as much since 2026-07:
  logits, and their gradient in fp32.
- "gradient in place": the gradient takes the place of the logits as soon as the loss is computed
  (Transformer Engine of 2025-02 to 2026-06, pytorch/triton/cross_entropy.py).

Losses in chunks, and those fused with the head, are `residence.resident`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..profile import CATEGORIES, StepTrace
from .storages import Storage, kernel_ticks, storages_of, with_storages

Loss = Literal[
    "whole",
    "one kernel",
    "one kernel beside zeros",
    "softmax kept",
    "softmax in place",
    "gradient in place",
    "chunked",
    "fused",
]
_OF_KERNELS = frozenset(
    {
        "one kernel",
        "one kernel beside zeros",
        "softmax kept",
        "softmax in place",
        "gradient in place",
    }
)


def with_loss(step: StepTrace, loss: Loss, *, keeps_logits: bool = False) -> StepTrace:
    """Return the step with only the storages that this kind of loss needs.

    Args:
        step: the step with its loss written out; models without cross-entropy stay as they are.
        loss: which kernel takes its place.
        keeps_logits: whether a variable of the training loop holds the logits until the step ends.
    """
    if loss not in _OF_KERNELS and not keeps_logits:
        return step
    rows = storages_of(step.memory)
    for found in _losses(step, rows):
        if loss in _OF_KERNELS:
            found.shorten(loss)
        if loss == "one kernel beside zeros":
            rows.append(found.zeros())
        if keeps_logits and loss != "fused":
            found.logits["death_tick"] = step.memory.end_tick - 1
    return with_storages(step, [row for row in rows if row["birth_tick"] < row["death_tick"]])


@dataclass(frozen=True)
class _CrossEntropy:
    """The storages of one cross-entropy, of tokens x vocabulary values each."""

    logits: Storage
    copy: Storage | None
    """In fp32, of 16-bit logits."""
    log_softmax: Storage
    of_log_softmax: Storage | None
    """The gradient of the log-softmax, and"""
    of_copy: Storage
    """that of the copy (of the logits, if there is none)."""
    of_logits: Storage | None
    """In 16 bits, of 16-bit logits."""

    def shorten(self, loss: Loss) -> None:
        """Let each storage live as long as the kernel needs it."""
        gradient = self.of_logits or self.of_copy
        made = gradient["birth_tick"]
        softmax = self.log_softmax["birth_tick"]
        _drop(self.of_log_softmax)
        if self.of_logits:
            _drop(self.of_copy)
        if loss != "softmax kept":
            _drop(self.copy)
        if loss in ("softmax kept", "softmax in place"):
            if loss == "softmax in place":
                _hold(self.logits, softmax + 1)
            self.log_softmax["death_tick"] = made + 1
            if not self.of_logits:
                _drop(self.log_softmax)
                gradient["birth_tick"] = softmax
            return
        _drop(self.log_softmax)
        # The gradient is another tensor, unless it takes the place of the logits.
        _hold(self.logits, made + (loss != "gradient in place"))

    def zeros(self) -> Storage:
        """Return the zeros that are the gradient of logits which the model returned.

        They are made before the backward pass, and there until the loss has added its own.
        """
        gradient = self.of_logits or self.of_copy
        before = self.of_log_softmax or gradient
        return gradient | {
            "birth_tick": before["birth_tick"],
            "death_tick": gradient["birth_tick"] + 1,
            "category": CATEGORIES.index("temporary"),
        }


def _hold(row: Storage, until: int) -> None:
    row["death_tick"] = max(row["death_tick"], until)


def _drop(row: Storage | None) -> None:
    if row is not None:
        row["death_tick"] = row["birth_tick"]


def _losses(step: StepTrace, rows: list[Storage]) -> list[_CrossEntropy]:
    """Return the cross-entropies of a step, found by their operations."""
    ticks = _ticks(step, ("_log_softmax", "nll_loss_backward", "_log_softmax_backward_data"))
    forward, backward = ticks["_log_softmax"], ticks["_log_softmax_backward_data"]
    found = []
    for start, gradient in zip(forward, reversed(backward), strict=False):
        before = max((t for t in ticks["nll_loss_backward"] if t < gradient), default=-1)
        loss = _cross_entropy(rows, start, before, gradient)
        if loss is not None:
            found.append(loss)
    return found


def _ticks(step: StepTrace, names: tuple[str, ...]) -> dict[str, list[int]]:
    ticks: dict[str, list[int]] = {name: [] for name in names}
    for tick, kernel in kernel_ticks(step):
        if kernel.op in ticks:
            ticks[kernel.op].append(tick)
    return ticks


def _cross_entropy(
    rows: list[Storage], start: int, before: int, gradient: int
) -> _CrossEntropy | None:
    """Return the storages around a log-softmax; None where its input is not there to be seen."""
    log_softmax = _born(rows, start, start)
    of_copy = _born(rows, gradient, gradient)
    if log_softmax is None or of_copy is None:
        return None
    size = _size(log_softmax)
    inputs = [
        row
        for row in rows
        if start - 3 <= row["birth_tick"] < start and _size(row) in (size, size / 2)
    ]
    if not inputs:
        return None
    whole = [row for row in inputs if _size(row) == size]
    halves = [row for row in inputs if _size(row) == size / 2]
    return _CrossEntropy(
        logits=halves[-1] if halves else whole[-1],
        copy=whole[-1] if halves and whole else None,
        log_softmax=log_softmax,
        of_log_softmax=_born(rows, before, before),
        of_copy=of_copy,
        of_logits=_born(rows, gradient + 1, gradient + 2, size / 2) if halves else None,
    )


def _born(rows: list[Storage], first: int, last: int, size: float | None = None) -> Storage | None:
    """Return the largest storage born in these ticks, of this size if one is given."""
    born = [
        row
        for row in rows
        if first <= row["birth_tick"] <= last and (size is None or _size(row) == size)
    ]
    return max(born, key=_size, default=None)


def _size(row: Storage) -> float:
    return row["bytes_per_sample"] or row["bytes_base"]
