"""Recurrent layers as cuDNN runs them, over whole and over packed sequences.

How long the sequences of a batch are is data. A packed batch is traced as if each were as long as
the padded tensor: the dearest case. cuDNN takes both in one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from . import operators
from .tensor_types import META

PACKED_WHOLE = (
    "packs padded sequences, whose lengths are data: each is taken to be as long as the padded"
    " tensor, the dearest case"
)


def rnn(mode: int) -> Callable[..., Any]:
    """Return what runs a recurrent layer of one of cuDNN's modes (see `operators.py`)."""

    def run(func: Callable[..., Any], *args: Any) -> Any:
        if not args[0].is_meta:
            return func(*args)
        if not isinstance(args[3], (list, tuple)):
            return _run(mode, *args)
        # Of packed sequences: (input, batch_sizes, state, weights, …), steps first.
        packed, batch_sizes, *rest = args
        steps = packed.unflatten(0, (len(batch_sizes), -1))
        out, *states = _run(mode, steps, *rest)
        return out.flatten(0, 1), *states

    return run


def _run(
    mode: int,
    input: torch.Tensor,
    state: Any,
    weights: Any,
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both_ways: bool,
    batch_first: bool = False,
) -> Any:
    hidden, cell = state if mode == operators.LSTM else (state, None)
    projected = weights[4].shape[0] if biases and len(weights) % (5 * layers) == 0 else 0
    out = torch.ops.aten._cudnn_rnn(
        input, list(weights), 4 if biases else 2, input.new_empty(0), hidden, cell, mode,
        weights[1].shape[1] if not projected else weights[0].shape[0] // 4, projected, layers,
        batch_first, dropout, train, both_ways, [], None,
    )  # fmt: skip
    return out[:3] if mode == operators.LSTM else out[:2]


def pack_whole(
    func: Callable[..., Any], input: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Lay sequences end to end, step by step, each as long as the longest can be.

    Args:
        func: what torch runs on tensors that are not the device's.
        input: [samples, steps, …] with `batch_first`, else [steps, samples, …].
        lengths: [samples], unknown on a device.
        batch_first: as torch has it.

    Returns:
        [steps × samples, …] and, on the host, how many samples each step has.
    """
    if not input.is_meta:
        return func(input, lengths, batch_first)
    steps_first = input.transpose(0, 1) if batch_first else input
    steps, samples = steps_first.shape[:2]
    return steps_first.flatten(0, 1), torch.full((steps,), samples, dtype=torch.int64)


def pad_whole(
    func: Callable[..., Any],
    data: torch.Tensor,
    batch_sizes: torch.Tensor,
    batch_first: bool,
    padding_value: float,
    total_length: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Undo `pack_whole`; the lengths that come with it are as unknown as they were.

    Args:
        func: what torch runs on tensors that are not the device's.
        data: [steps × samples, …]
        batch_sizes: [steps]
        batch_first: whether samples come first in what is returned.
        padding_value: of steps that are added.
        total_length: steps that are returned.
    """
    if not data.is_meta:
        return func(data, batch_sizes, batch_first, padding_value, total_length)
    steps = data.unflatten(0, (len(batch_sizes), -1))
    added = [0, 0] * (steps.dim() - 1) + [0, total_length - len(batch_sizes)]
    padded = F.pad(steps, added, value=padding_value)
    lengths = torch.empty(steps.shape[1], dtype=torch.int64, device=META)
    return (padded.transpose(0, 1) if batch_first else padded), lengths
