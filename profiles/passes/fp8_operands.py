"""What a block keeps of the operands of its 8-bit products, from the step that multiplies 16 bits.

The gradient of a layer's weight multiplies the layer's input, which therefore waits for the
backward pass. Where the layer keeps its own copy in 8 bits, nobody else needs the 16 bits of a norm
or an activation function any more; those of attention's result attention itself needs as well.
Products whose weight is far longer than wide, of routers and adapters, stay in 16 bits: Megatron's
`Router` and its adapters are no layers of Transformer Engine.
"""

from __future__ import annotations

from typing import Literal

from ..profile import CATEGORIES, KERNEL_KINDS, Kernel, StepTrace
from .storages import GROWTH, Storage, grows, kernel_ticks, storages_of, with_storages

KeptOperands = Literal["16 bits", "8 bits", "8 bits, attention's twice", "made again"]
"""As they are computed; in 8 bits alone, or with a copy of attention's result beside that of
attention; or cast again in the backward pass (`with_fused_kernels`)."""

_ACTIVATIONS = CATEGORIES.index("activations")
_ATTENTION = KERNEL_KINDS.index("attention")
_LONG = 16
"""From so many times as long as wide on a weight is taken for that of a router or an adapter: a
layer of latent attention is up to 12.4 times (DeepSeek-V3, 7168 to 576), a router of 384 experts 18
(Kimi K2)."""


def with_kept_operands(step: StepTrace, kept: KeptOperands) -> StepTrace:
    """Return the step with what blocks keep of 8-bit operands.

    Args:
        step: the step without recompute; traces without producers stay as they are.
        kept: how.
    """
    if kept == "16 bits" or not step.memory.producer:
        return step
    rows = storages_of(step.memory)
    operands = ticks_in_8_bits(step)
    blocks = _ends_of_blocks(step)
    results: dict[tuple[int, int], int] = {}
    for number, row in enumerate(rows):
        end = blocks.get(row["instance"])
        if end is None or row["category"] != _ACTIVATIONS or not grows(row):
            continue
        if row["inside_tick"] < end:
            continue
        if row["producer"] == _ATTENTION:
            # Beside the statistics of its softmax, which are smaller.
            born = row["instance"], row["birth_tick"]
            largest = results.setdefault(born, number)
            if row["bytes_per_sample"] > rows[largest]["bytes_per_sample"]:
                results[born] = number
        elif row["inside_tick"] in operands:
            _scale(row, 0.5)
    if kept != "8 bits":
        for number in results.values():
            _scale(rows[number], 1.5)
    return with_storages(step, rows)


def ticks_in_8_bits(step: StepTrace) -> set[int]:
    """Return the ticks at which the products of layers run that 8-bit recipes run in 8 bits."""
    return {tick for tick, kernel in kernel_ticks(step) if is_in_8_bits(kernel)}


def is_in_8_bits(kernel: Kernel) -> bool:
    """Return whether 8-bit recipes run a kernel in 8 bits: a layer's, but no router's."""
    if kernel.kind != "gemm" or not kernel.linear or kernel.dtype != "16bit":
        return False
    widths = [kernel.dims[name].base for name in ("m", "n", "k") if not kernel.dims[name].grows]
    return len(widths) == 2 and max(widths) < _LONG * min(widths)


def _ends_of_blocks(step: StepTrace) -> dict[int, int]:
    """Return where the forward pass of each execution of a repeated block ends, by its instance."""
    found = {}
    for index, number in enumerate(step.schedule):
        segment = step.segments[number]
        if segment.phase == "forward" and segment.block is not None:
            following = step.start_tick[index + 1 : index + 2] or [step.memory.end_tick]
            found[index] = following[0]
    return found


def _scale(row: Storage, factor: float) -> None:
    for name in GROWTH:
        if name in row:
            row[name] = round(factor * row[name])
