"""What Megatron's blocks do not keep of the step that is written out in torch.

- Attention keeps values of their own. A slice of what one layer gave for queries, keys and values
  holds all of it; Transformer Engine copies values that do not lie as rotated queries and keys do
  (pytorch/attention/dot_product_attention/utils.py, `get_qkv_layout`), and Megatron those of latent
  attention (core/transformer/multi_latent_attention.py). Megatron's calls of flash attention before
  that copied all three.
- What experts give is weighted by the router before their last product, inside the activation
  function (core/fusions/fused_bias_swiglu.py, `weighted_bias_swiglu_impl`): nothing needs the
  result of that product any more.
- The input of an activation function may wait in 8 bits (`activation_func_fp8_input_store`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..profile import CATEGORIES, KERNEL_KINDS, Kernel, Segment, StepTrace
from .storages import GROWTH, Storage, grows, kernel_ticks, storages_of, with_storages

_ACTIVATIONS = CATEGORIES.index("activations")
_LARGE = ("gemm", "attention", "norm")
"""Kinds of kernels that read the results of layers, but for activation functions."""
_ATTENTION, _PRODUCT = KERNEL_KINDS.index("attention"), KERNEL_KINDS.index("gemm")


@dataclass(frozen=True, kw_only=True)
class MegatronBlocks:
    """Which of these a version of the software does."""

    copies_values: bool = False
    weights_inside_experts: bool = False
    activates_8_bits: bool = False
    """Whether activation functions keep their inputs in 8 bits."""


AS_WRITTEN = MegatronBlocks()
QUERIES_AND_KEYS = 2


def with_megatron_blocks(step: StepTrace, blocks: MegatronBlocks) -> StepTrace:
    """Return the step with only what such blocks keep for their backward pass.

    Args:
        step: the step without recompute; traces without producers stay as they are.
        blocks: what of it they do.
    """
    if blocks == AS_WRITTEN or not step.memory.producer:
        return step
    rows = storages_of(step.memory)
    ends = [*step.start_tick[1:], step.memory.end_tick]
    made: dict[int, list[Storage]] = {}
    for row in rows:
        made.setdefault(row["instance"], []).append(row)
    kernels = dict(kernel_ticks(step))
    for number, (segment, own) in _forward_passes(step).items():
        held = [row for row in made.get(number, []) if _is_kept(row, ends[number])]
        if blocks.copies_values:
            _copy_values(held, segment)
        if blocks.weights_inside_experts:
            _let_go_of_results(held, own, kernels, ends[number])
        if blocks.activates_8_bits:
            for row in _used_by_small_kernels(held, kernels):
                row |= {name: round(row[name] / 2) for name in GROWTH if name in row}
    return with_storages(step, rows)


def _forward_passes(step: StepTrace) -> dict[int, tuple[Segment, dict[int, Kernel]]]:
    """Return the forward passes of repeated blocks, with their kernels by tick."""
    found = {}
    for index, number in enumerate(step.schedule):
        segment = step.segments[number]
        if segment.phase == "forward" and segment.block is not None:
            start = step.start_tick[index]
            # Traces of before offsets were kept have none.
            own = zip(segment.offsets, segment.kernels, strict=False)
            found[index] = segment, {start + offset: kernel for offset, kernel in own}
    return found


def _is_kept(row: Storage, end: int) -> bool:
    return row["category"] == _ACTIVATIONS and row["inside_tick"] >= end and grows(row)


def _copy_values(held: list[Storage], segment: Segment) -> None:
    """Shrink the product that values are a slice of, where queries and keys are not.

    Blocks with several attention cores stay as they are.
    """
    cores = [kernel for kernel in segment.kernels if kernel.kind == "attention"]
    results = [row for row in held if row["producer"] == _ATTENTION]
    if len(cores) != 1 or not results:
        return
    result, dims = max(results, key=_size), cores[0].dims
    taken = [row for row in held if row["inside_tick"] == result["inside_tick"]]
    apart = [row for row in taken if row["producer"] not in (_ATTENTION, _PRODUCT)]
    # Where keys are a slice as well, or of another length, the product is kept as it is.
    if len(apart) < QUERIES_AND_KEYS or dims["seq_q"] != dims["seq_kv"]:
        return
    values = _size(result) * dims["kv_heads"].base / dims["heads"].base
    for row in taken:
        if row["producer"] == _PRODUCT and _size(row) > values:
            share = values / _size(row)
            row |= {name: round(share * row[name]) for name in GROWTH if name in row}


def _let_go_of_results(
    held: list[Storage], own: dict[int, Kernel], kernels: dict[int, Kernel], end: int
) -> None:
    """Keep what the last product of experts gave no longer than the forward pass."""
    last = max((tick for tick, kernel in own.items() if _is_of_experts(kernel)), default=None)
    for row in _used_by_small_kernels(held, kernels):
        if row["birth_tick"] == last and row["outside_tick"] < 0:
            row["death_tick"] = end


def _used_by_small_kernels(held: list[Storage], kernels: dict[int, Kernel]) -> Iterator[Storage]:
    """Yield results of products that neither products, attention nor norms read backward."""
    for row in held:
        used = kernels.get(row["inside_tick"])
        if row["producer"] == _PRODUCT and used is not None and used.kind not in _LARGE:
            yield row


def _is_of_experts(kernel: Kernel) -> bool:
    """Return whether a kernel multiplies groups of tokens by the weights of their experts.

    That holds of a step that is not divided over ranks, where there are several groups.
    """
    batch = kernel.dims.get("batch")
    return kernel.kind == "gemm" and kernel.linear and batch is not None and batch.base > 1


def _size(row: Storage) -> float:
    return row["bytes_per_sample"]
