"""A step whose storages do not all stay on the device, derived from the step where they do.

Rules:

- Saved activations on the host: each leaves when the block after the one that made it has run, and
  is back when the backward pass reaches the block that needs it (torchtune `OffloadActivations`,
  which copies on streams of its own; torch `save_on_cpu` without them).
- Gradients that are used as soon as they are made, by an optimizer in the backward pass (torch
  `register_post_accumulate_grad_hook`) or by a copy to the host, live for one operation.
- What the host keeps and steps (parameters, the optimizer's state and temporaries) is not there.
- A loss over chunks of the tokens holds its fp32 logits one chunk at a time, and keeps all of them
  in 16 bits for its backward pass (torchtune `CEWithChunkedOutputLoss`, 8 chunks); fused with the
  head it makes the gradient of a chunk at once, and no logits are kept (Liger
  `FusedLinearCrossEntropy`, whose chunk of logits is about as large as the hidden states).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..profile import CATEGORIES, Affine, StepTrace
from .fp8_operands import KeptOperands
from .fused_kernels import Fused
from .loss import Loss, with_loss
from .megatron_blocks import AS_WRITTEN, MegatronBlocks
from .softmax_input import with_softmax_inputs
from .storages import Storage, grows, storages_of, with_storages
from .torchscript_gelu import with_scripted_gelu

_PARAMETERS, _GRADIENTS = CATEGORIES.index("parameters"), CATEGORIES.index("gradients")
_OPTIMIZER, _TEMPORARY = CATEGORIES.index("optimizer"), CATEGORIES.index("temporary")
_ACTIVATIONS = CATEGORIES.index("activations")

LOSS_CHUNKS = 8
"""torchtune's default `num_output_chunks`."""
FUSED_LOSS_CHUNKS = 32
"""Liger takes the power of two next to vocabulary / hidden size: 32 for 128k and 4,096."""


@dataclass(frozen=True, kw_only=True)
class Residence:
    """What of a step is not kept on the device all the time."""

    parameters_on_host: bool = False
    optimizer_on_host: bool = False
    activations_on_host: bool = False
    """Those that wait for the backward pass."""
    gradients_used_at_once: bool = False
    loss: Loss = "whole"
    keeps_logits: bool = False
    """Whether a variable of the training loop holds the logits until the step ends."""
    keeps_gradients: bool = False
    """Whether gradients live on through the forward pass of the next step. The storages of one step
    do not show it: whoever asks what is held has to (`replay`, `kept_passes`)."""
    built_in_fp32: bool = False
    """Whether 16-bit parameters were made in fp32 on the device, and cast there: that is before the
    step, and so for its replay to see, too."""
    scripts_gelu: bool = False
    """Whether GELU is a TorchScript function of 2020."""
    keeps_softmax_inputs: bool = False
    """Whether softmax saves its input beside its result, as torch before 1.11."""
    fuses: Fused = "nothing"
    """What of blocks runs in fused kernels, so that less is kept (`with_fused_kernels`). It is so
    before recompute, and so not `resident`'s."""
    operands: KeptOperands = "16 bits"
    """How blocks keep what 8-bit products multiply (`with_kept_operands`); before recompute too."""
    blocks: MegatronBlocks = AS_WRITTEN
    """What blocks keep less because they are Megatron's; before recompute too."""

    @property
    def at_home(self) -> Residence:
        """What of it comes before recompute, all of it being on the device."""
        return replace(ON_DEVICE, fuses=self.fuses, operands=self.operands, blocks=self.blocks)


ON_DEVICE = Residence()


def resident(step: StepTrace, residence: Residence) -> StepTrace:
    """Return the step with only the storages that are on the device, while they are there.

    Args:
        step: the step, recompute included.
        residence: what leaves the device.
    """
    unseen = {"keeps_gradients": False, "built_in_fp32": False}
    if replace(residence, **unseen) == residence.at_home:
        return step
    step = with_loss(step, residence.loss, keeps_logits=residence.keeps_logits)
    if residence.scripts_gelu:
        step = with_scripted_gelu(step)
    if residence.keeps_softmax_inputs:
        step = with_softmax_inputs(step)
    rows = storages_of(step.memory)
    scratch = _scratch_of_gradients(step, rows)
    if residence.loss in ("chunked", "fused"):
        rows = _with_loss(step, rows, residence.loss)
    kept: list[Storage] = []
    for row in rows:
        category = row["category"]
        if category == _PARAMETERS and residence.parameters_on_host:
            continue
        stepping = category == _OPTIMIZER or _is_of_optimizer(step, row)
        if stepping and residence.optimizer_on_host:
            continue
        if residence.gradients_used_at_once and category == _GRADIENTS:
            short = row | {"death_tick": row["birth_tick"] + 1}
            kept.append(short)
            if not residence.optimizer_on_host and scratch:
                size = round(scratch * row["bytes_base"])
                kept.append(short | {"category": _TEMPORARY, "bytes_base": size})
        elif residence.gradients_used_at_once and stepping and category == _TEMPORARY:
            continue  # Each parameter's stand beside its gradient instead.
        elif residence.activations_on_host and category == _ACTIVATIONS:
            kept += _stays(step, row)
        else:
            kept.append(row)
    return with_storages(step, kept)


def offloaded_activation_bytes(step: StepTrace) -> Affine:
    """Return bytes of one micro-batch that leave for the host, and come back, each once."""
    return Affine.total(
        Affine(*size)
        for row, size in zip(
            storages_of(step.memory), zip(*step.memory.growth, strict=True), strict=True
        )
        if row["category"] == _ACTIVATIONS and _absence(step, row) is not None
    )


def _is_of_optimizer(step: StepTrace, row: Storage) -> bool:
    """Return whether a storage was made by the optimizer's segment."""
    at = row["instance"]
    return at >= 0 and step.segments[step.schedule[at]].phase == "optimizer"


def _scratch_of_gradients(step: StepTrace, rows: list[Storage]) -> float:
    """Return temporary bytes of the optimizer step, over those of all gradients."""
    gradients = sum(row["bytes_base"] for row in rows if row["category"] == _GRADIENTS)
    temporary = sum(
        row["bytes_base"]
        for row in rows
        if row["category"] == _TEMPORARY and _is_of_optimizer(step, row)
    )
    return temporary / gradients if gradients else 0.0


def _with_loss(step: StepTrace, rows: list[Storage], loss: Loss) -> list[Storage]:
    """Return the storages with the logits, and what is as large, in chunks."""
    head = _head_instances(step)
    moving = (_ACTIVATIONS, _TEMPORARY)
    sizes = [
        row["bytes_per_sample"] if row["instance"] in head and row["category"] in moving else 0
        for row in rows
    ]
    largest = max(sizes, default=0)

    def share(row: Storage, size: int) -> float:
        if not size or size < 0.4 * largest:
            return 1.0
        if loss == "fused":
            return 1 / FUSED_LOSS_CHUNKS
        if size < 0.9 * largest:
            return 1.0  # In 16 bits.
        return 0.5 if row["category"] == _ACTIVATIONS else 1 / LOSS_CHUNKS

    return [
        row | {"bytes_per_sample": round(share(row, size) * row["bytes_per_sample"])}
        for row, size in zip(rows, sizes, strict=True)
    ]


def _head_instances(step: StepTrace) -> set[int]:
    """Return the root's instances around the turn from forward to backward: head and loss."""
    segments = [step.segments[index] for index in step.schedule]
    turn = next((i for i, one in enumerate(segments) if one.phase == "backward"), len(segments))
    found: set[int] = set()
    for path in (range(turn - 1, -1, -1), range(turn, len(segments))):
        for i in path:
            if segments[i].block is not None or segments[i].phase == "optimizer":
                break
            found.add(i)
    return found


def _stays(step: StepTrace, row: Storage) -> Iterator[Storage]:
    """Yield an activation as it is on the device: once, or before and after its absence."""
    absence = _absence(step, row)
    if absence is None:
        yield row
        return
    leaves, returns = absence
    yield row | {"death_tick": leaves}
    yield row | {"birth_tick": returns}


def _absence(step: StepTrace, row: Storage) -> tuple[int, int] | None:
    """Return the ticks between which a saved activation is on the host; None if it never is."""
    made = row["instance"]
    if made < 0 or not grows(row):
        return None
    if step.segments[step.schedule[made]].phase != "forward" or made + 2 >= len(step.schedule):
        return None
    used = bisect_left(step.start_tick, row["death_tick"]) - 1
    if step.segments[step.schedule[used]].phase not in ("backward", "recompute"):
        return None
    before = used - 1
    rerun = step.segments[step.schedule[before]].phase == "recompute"
    if rerun and step.forward_of[before] == step.forward_of[used]:
        used = before
    leaves, returns = step.start_tick[made + 2], step.start_tick[used]
    return (leaves, returns) if leaves < returns else None
