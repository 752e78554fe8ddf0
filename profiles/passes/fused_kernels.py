"""What a fusing compiler keeps of a block for its backward pass, from the step that runs op by op.

torch.compile's partitioner (torch/_functorch/partitioners.py, min-cut rematerialisation) computes
pointwise results and norms again inside the fused kernels of the backward pass, wherever their
inputs are there anyway. What it keeps are

- the inputs of matrix products, convolutions and attention (their own backward kernels read them),
- what a pointwise chain starts from: what enters the block, and of the results of such kernels
  that are not kept themselves what is first made of them (a residual sum),
- random masks, which are not drawn again.

Megatron fuses its activation functions alone (core/fusions/fused_bias_swiglu.py, which keeps its
input): norms and residual sums stay, as Transformer Engine's layers keep what they normalise beside
the result. Checked against the partitioner itself in tests/profiles/passes/test_fused_kernels.py.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

from ..profile import CATEGORIES, KERNEL_KINDS, StepTrace
from .fp8_operands import is_in_8_bits
from .storages import Storage, grows, kernel_ticks, storages_of, with_storages

Fused = Literal["nothing", "activation functions", "blocks"]
"""What of a block runs in fused kernels."""

_ACTIVATIONS = CATEGORIES.index("activations")
_PRODUCTS = frozenset(
    KERNEL_KINDS.index(kind) for kind in ("gemm", "attention", "convolution", "rnn")
)
_FUSED = frozenset(
    KERNEL_KINDS.index(kind) for kind in ("norm", "softmax", "pointwise", "copy", "reduction")
)
_POINTWISE = KERNEL_KINDS.index("pointwise")


def with_fused_kernels(
    step: StepTrace, fused: Fused = "blocks", *, casts_again: bool = False
) -> StepTrace:
    """Return the step with only what fused kernels keep between a block's forward and backward.

    Args:
        step: the step without recompute; traces without producers stay as they are.
        fused: what of a block.
        casts_again: whether the inputs of layers are cast to 8 bits in fused kernels, so that they
            can be made again in the backward pass.
    """
    if not step.memory.producer or not step.forward_of or fused == "nothing":
        return step
    rows = storages_of(step.memory)
    keeping = {
        tick
        for tick, kernel in kernel_ticks(step)
        if _keeps_operands(KERNEL_KINDS.index(kernel.kind), fused)
        and not (casts_again and is_in_8_bits(kernel))
    }
    made_again = {_POINTWISE} if fused == "activation functions" else _FUSED
    gone: set[int] = set()
    made, entering = _by_instance(rows, "instance"), _by_instance(rows, "entered")
    for block in _blocks(step):
        own, entered = made.get(block.forward, []), entering.get(block.forward, [])
        gone |= _fuse(block, rows, _Again(keeping, made_again), own, entered)
    return with_storages(step, [row for number, row in enumerate(rows) if number not in gone])


def _keeps_operands(kind: int, fused: Fused) -> bool:
    """Return whether kernels of a kind read in the backward pass what the forward pass kept."""
    return kind in _PRODUCTS if fused == "blocks" else kind != _POINTWISE


@dataclass(frozen=True)
class _Again:
    """What fused kernels of the backward pass compute again."""

    keeping: Set[int]
    """Ticks of the kernels whose operands are kept."""
    producers: Set[int]
    """Kinds of the kernels whose results are not."""


@dataclass(frozen=True)
class _Block:
    """One execution of a repeated block."""

    forward: int
    """Index of its forward instance."""
    start_tick: int
    end_tick: int
    """Of the forward pass."""


def _blocks(step: StepTrace) -> list[_Block]:
    found = []
    for index, number in enumerate(step.schedule):
        segment = step.segments[number]
        if segment.phase == "forward" and segment.block is not None:
            end = step.start_tick[index + 1 : index + 2] or [step.memory.end_tick]
            found.append(_Block(index, step.start_tick[index], end[0]))
    return found


def _by_instance(rows: list[Storage], column: str) -> dict[int, list[int]]:
    """Return the numbers of the rows by one column, so that no block looks at all of them."""
    found: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        found.setdefault(row[column], []).append(number)
    return found


def _fuse(
    block: _Block,
    rows: list[Storage],
    again: _Again,
    own: list[int],
    entering: list[int],
) -> set[int]:
    """Return the numbers of one block's rows that go; what enters it lives as long as they did.

    Args:
        block: one execution.
        rows: of the step.
        again: what is computed again.
        own: numbers of the rows that it makes.
        entering: of those that it is given.
    """
    born: dict[int, list[int]] = {}
    for number in own:
        born.setdefault(rows[number]["birth_tick"], []).append(number)
    gone = {
        number
        for number in own
        if _is_made_again(rows[number], block, again) and _is_largest(number, rows, born)
    }
    gone -= {
        found
        for number in own
        if rows[number]["producer"] in _PRODUCTS and rows[number]["death_tick"] <= block.end_tick
        for found in _first_kept(number, rows, born, gone, block)
    }
    if gone:
        until = max(rows[number]["inside_tick"] for number in gone)
        for row in map(rows.__getitem__, entering):
            enters = row["death_tick"] > block.start_tick
            if enters and grows(row) and row["inside_tick"] < until:
                row["death_tick"] = max(row["death_tick"], until + 1)
                row["category"] = _ACTIVATIONS
    return gone


def _first_kept(
    number: int, rows: list[Storage], born: dict[int, list[int]], gone: set[int], block: _Block
) -> set[int]:
    """Return the rows of `gone` that a chain of results from this one, let go of, first reaches.

    What they are made of is no longer there; they stand for it.
    """
    first, used = rows[number]["birth_tick"] + 1, rows[number]["death_tick"]
    # Let go of when the operation that used it last ends; the next one does not see it.
    results = next(
        (found for tick in (used - 1, used) if (found := _born_at(tick, number, rows, born))), []
    )
    found = {other for other in results if other in gone}
    if found:
        return found
    loose = [other for other in results if rows[other]["death_tick"] <= block.end_tick]
    if len(loose) == len(results):
        return {one for other in loose for one in _first_kept(other, rows, born, gone, block)}
    # A variable may hold it for longer: what the very next operation made of it.
    return {
        other
        for other in _born_at(first, number, rows, born)
        if other in gone and rows[other]["bytes_per_sample"] == rows[number]["bytes_per_sample"]
    }


def _born_at(tick: int, number: int, rows: list[Storage], born: dict[int, list[int]]) -> list[int]:
    """Return the results, masks left out, that are made at a tick after this one."""
    if tick <= rows[number]["birth_tick"]:
        return []
    later = [other for other in born.get(tick, ()) if other > number]
    return [other for other in later if _is_largest(other, rows, born)]


def _is_largest(number: int, rows: list[Storage], born: dict[int, list[int]]) -> bool:
    """Return whether it is no mask, which stands beside the larger result it was drawn for."""
    beside = born[rows[number]["birth_tick"]]
    return rows[number]["bytes_per_sample"] == max(rows[one]["bytes_per_sample"] for one in beside)


def _is_made_again(row: Storage, block: _Block, again: _Again) -> bool:
    """Return whether a fused kernel of the backward pass computes this again."""
    return (
        row["category"] == _ACTIVATIONS
        and row["producer"] in again.producers
        and grows(row)
        and row["entered"] < 0
        and row["outside_tick"] < 0
        and row["inside_tick"] >= block.end_tick
        and row["inside_tick"] not in again.keeping
    )
