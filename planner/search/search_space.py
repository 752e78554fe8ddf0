"""The candidates of a question: node counts, layouts, precisions, recompute, batch sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...catalog.errors import UsageError
from ...catalog.types import OLDEST_FOR_TRITON, Accelerator
from ...catalog.vocabulary import PRECISIONS, STACKS, Precision, Recompute, Stack
from ...profiles.profile import Profile
from ..cost.run_cost import given_samples
from ..hardware.device import supported_precisions
from ..plan.answer.asked import AskedBatch
from ..plan.layout import Layout
from ..plan.question import Choices, Machine, Question
from .across_samples import kept_micro_batch
from .batch_rule import global_batch_of
from .layouts.some_layers import asked_share

LARGEST_FREE_MICRO_BATCH = 1024
"""Where no global batch bounds it."""
MOST_NAMED = 4
"""Devices in a message."""
FACTORS = (3, 5)
"""Numbers of nodes are these times a power of two, beside the powers: BLOOM was trained on 48 nodes
of 8 in 12 stages (arXiv:2211.05100, section 3.4.1), 80 layers make 5, 10 or 20 stages. Only one of
them, for a search takes as long as there are numbers of nodes."""
MOST_SPLIT_BATCHES = 6
"""Micro-batch sizes of split layouts where none was given: the powers of two up to 32."""


@dataclass(frozen=True, kw_only=True)
class Space:
    """What the question leaves free, spelled out."""

    node_counts: tuple[int, ...]
    layouts: tuple[Layout, ...]
    """Empty: the data-parallel layouts for each number of ranks."""
    most_nodes: int | None = None
    """Where the numbers of nodes are free: the largest."""
    recomputes: tuple[Recompute, ...]
    micro_batches: np.ndarray
    grad_accums: tuple[int, ...]
    """Empty: 1, or what the global batch asks for."""
    global_batch: int | None
    batch: AskedBatch
    """The same, with where it is from."""
    recompute_share: float = 1.0
    """Part of the layers that are recomputed, where it is given."""
    fixed: bool
    """One instance, node count, layout and micro-batch: exactly one plan."""

    def divides_batch(self, nodes: int) -> bool:
        """Return whether so many nodes, without their powers of two, divide the global batch."""
        odd = nodes // (nodes & -nodes)
        return self.global_batch is None or self.global_batch % odd == 0

    def nodes_of(self, per_node: int) -> tuple[int, ...]:
        """Return the numbers of nodes to try of a machine: where a layout is given, those it takes.

        A layout of 384 ranks is 48 nodes of eight, whether or not 48 is a number that is tried.
        """
        if not self.layouts or self.most_nodes is None:
            return self.node_counts
        wanted = (divmod(layout.accelerators, per_node) for layout in self.layouts)
        exact = {nodes for nodes, rest in wanted if nodes and not rest}
        return tuple(sorted(nodes for nodes in exact if nodes <= self.most_nodes))

    def layouts_for(self, nodes: int, per_node: int) -> Sequence[Layout]:
        """Return the layouts to try on this many ranks."""
        if self.layouts:
            ranks = nodes * per_node
            return [layout for layout in self.layouts if layout.accelerators == ranks]
        return _data_parallel_layouts(nodes, per_node)


def space_of(question: Question, profile: Profile) -> Space:
    """Return the space that a question spans for this model.

    Raises:
        UsageError: the global batch is in tokens, and the file does not say how many a sample has;
            or more layers are to be recomputed than there are.
    """
    choices, machine = question.choices, question.machine
    fixed = is_fixed(machine, choices)
    batch = asked_batch(question, profile)
    global_batch = batch.samples
    recomputes: tuple[Recompute, ...] = choices.recomputes or (
        ("none", "selective", "full") if profile.blocks and not fixed else ("none",)
    )
    return Space(
        node_counts=node_counts(machine, factors=_factors(profile, global_batch)),
        layouts=choices.layouts,
        most_nodes=None if machine.nodes else machine.max_nodes,
        recomputes=recomputes,
        recompute_share=asked_share(choices, profile),
        micro_batches=_micro_batches(choices, global_batch, profile),
        grad_accums=choices.grad_accums,
        global_batch=global_batch,
        batch=batch,
        fixed=fixed,
    )


def asked_batch(question: Question, profile: Profile) -> AskedBatch:
    """Return the global batch of a question: given, made by what was given, or by the rule.

    Raises:
        UsageError: as `space_of`.
    """
    work, choices = question.work, question.choices
    given = work.global_batch is not None or work.global_batch_tokens is not None
    made = choices.micro_batches and choices.grad_accums and choices.layouts
    if not given and (made or is_fixed(question.machine, choices)):
        return AskedBatch(source="layout")
    samples = given_samples(work, profile.tokens_per_sample)
    if samples is None and question.asks_for_work:
        samples = work.about_samples
    # Ranks share the samples of a step, and every number of nodes makes as many ranks as that.
    shares = [layout.data for layout in choices.layouts] or question.machine.nodes
    batch = global_batch_of(profile, work, samples, odd=_odd_factor(shares))
    kept = kept_micro_batch(profile, choices, None)
    return batch if kept is None else _in_micro_batches(batch, kept)


def _odd_factor(shares: Sequence[int]) -> int:
    """Return by what a batch divides, beside powers of two, that any of these can share evenly.

    Shares are ranks, or nodes.

    >>> _odd_factor([3]), _odd_factor([1, 6, 10]), _odd_factor([])
    (3, 15, 1)
    """
    whole = math.lcm(*shares)
    return whole // (whole & -whole)


def _in_micro_batches(batch: AskedBatch, size: int) -> AskedBatch:
    """Return a batch that the rule made as a multiple of the only micro-batch there is."""
    samples = batch.samples
    if batch.source != "rule" or samples is None or samples % size == 0:
        return batch
    whole = max(1, round(samples / size)) * size
    tokens = None if batch.tokens is None else batch.tokens / samples * whole
    rule = f"{batch.rule}, in micro-batches of {size:,}"
    if size > samples:
        rule = f"the file's micro-batch, as {batch.rule} are fewer"
    return batch.model_copy(update={"samples": whole, "tokens": tokens, "rule": rule})


def is_fixed(machine: Machine, choices: Choices) -> bool:
    """Return whether the question names exactly one plan."""
    return all(
        len(given) == 1
        for given in (machine.instances, machine.nodes, choices.layouts, choices.micro_batches)
    )


def precisions_for(
    accelerator: Accelerator, profile: Profile, choices: Choices, *, fixed: bool
) -> tuple[Precision, ...]:
    """Return the precisions to try on a device.

    Free choice: what the file itself sets; else fp32 (as TF32 where the device has it) and 16-bit
    autocast in the best format of the device.
    """
    able = supported_precisions(accelerator)
    if choices.precisions:
        return tuple(p for p in choices.precisions if p in able)
    own = file_precision(profile)
    if fixed:
        only: Precision = own or "fp32"
        return (only,) if only in able else ()
    full: tuple[Precision, ...] = ("tf32", "fp32")
    half: tuple[Precision, ...] = ("bf16-amp", "fp16-amp")
    if own is not None and own in half:
        preferred: tuple[Precision, ...] = (own, *half)
        return _first(preferred, able)
    if own == "bf16" or own == "fp8":
        return _first((own,), able)
    return _first(full, able) + _first(half, able)


def file_precision(profile: Profile) -> Precision | None:
    """Return the precision that the file itself sets, as one of ours."""
    return next((p for p in PRECISIONS if p == profile.file_precision), None)


def stack_for(accelerator: Accelerator, profile: Profile, choices: Choices) -> Stack:
    """Return the software stack a device is planned with unless the user names one."""
    if choices.stack is not None:
        return choices.stack
    if accelerator.needs_xla:
        return "xla"
    return "torch-compile" if _compiles(profile, choices) else "torch-eager"


def asked_stack(profile: Profile, choices: Choices, devices: Iterable[Accelerator]) -> Stack | None:
    """Return the stack that the options or the file ask for; None: neither does, or any runs."""
    if choices.stack is None and any(one.needs_xla for one in devices):
        return None  # Those are planned with XLA, whatever the file compiles elsewhere.
    return choices.stack or ("torch-compile" if _compiles(profile, choices) else None)


def _compiles(profile: Profile, choices: Choices) -> bool:
    return profile.file_compiles if choices.compile is None else choices.compile


def drives(stack: Stack, accelerator: Accelerator) -> bool:
    """Return whether a stack runs a torch file on a device.

    TPUs, Trainium and Inferentia run it through XLA alone (torch/XLA, torch-neuronx), and torch/XLA
    runs on no GPU any more: CUDA was deprecated in its release 2.8 and taken out after it
    (github.com/pytorch/xla/pull/9598). torch.compile writes Triton, which GPUs before Volta do not
    run. A host processor is not judged.
    """
    if accelerator.is_cpu:
        return True
    if stack == "torch-compile" and not accelerator.can_compile:
        return False
    return (stack == "xla") == accelerator.needs_xla


def refuse_other_devices(stack: Stack, devices: Iterable[Accelerator]) -> None:
    """Raise UsageError where a stack that was asked for drives none of the devices."""
    by_name = {device.name: device for device in devices}
    if not by_name or any(drives(stack, device) for device in by_name.values()):
        return
    named = sorted(by_name)
    able = [one for one in STACKS if (one == "xla") != (stack == "xla")]
    listed = ", ".join(named[:MOST_NAMED]) + (" …" if len(named) > MOST_NAMED else "")
    if stack == "torch-compile" and not any(by_name[one].needs_xla for one in named):
        raise UsageError(
            f"torch.compile does not run on {listed}: Triton, in which it writes kernels, needs"
            f" compute capability {OLDEST_FOR_TRITON} or newer.",
            fix="leave --compile and --stack out (give --no-compile where the file compiles).",
        )
    raise UsageError(
        f"The stack {stack} does not run torch code on {listed}.",
        fix=f"leave --stack out, or give {' or '.join(able)}, which run it there."
        if len(able) > 1
        else f"leave --stack out, or give --stack {able[0]}, which runs it there after a port.",
    )


def _first(wanted: tuple[Precision, ...], able: tuple[Precision, ...]) -> tuple[Precision, ...]:
    found: list[Precision] = [precision for precision in wanted if precision in able]
    return tuple(found[:1])


@lru_cache(maxsize=1024)
def _data_parallel_layouts(nodes: int, per_node: int) -> tuple[Layout, ...]:
    ranks = nodes * per_node
    if ranks == 1:
        return (Layout(),)
    layouts = [
        Layout(data=ranks),
        *(Layout(data=ranks, shard=ranks, zero_stage=stage) for stage in (1, 2, 3)),
    ]
    if nodes > 1 and per_node > 1:
        layouts.append(Layout(data=ranks, shard=per_node, zero_stage=3))
    return tuple(layouts)


def node_counts(machine: Machine, *, factors: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the numbers of nodes to try, each once.

    Those given, else powers of two, and factors times them.

    >>> node_counts(Machine(max_nodes=12), factors=(3,))
    (1, 2, 3, 4, 6, 8, 12)
    """
    if machine.nodes:
        return tuple(dict.fromkeys(machine.nodes))
    counts = []
    for factor in (1, *factors):
        count = factor
        while count <= machine.max_nodes:
            counts.append(count)
            count *= 2
    return tuple(sorted(counts))


def _factors(profile: Profile, global_batch: int | None) -> list[int]:
    """Return the first of `FACTORS` that the global batch divides by, or the layers, as stages.

    Stages are equal, or would be with embedding and head counted as layers. With a free batch every
    number of nodes makes steps of its own, so that more of them would answer nothing.
    """
    if global_batch is None:
        return []
    layers = sum(group.count for group in profile.blocks)
    stages = (layers, layers + 2) if layers else ()
    found = [n for n in FACTORS if any(size % n == 0 for size in (global_batch, *stages))]
    return found[:1]


def _micro_batches(choices: Choices, global_batch: int | None, profile: Profile) -> np.ndarray:
    if choices.micro_batches:
        return np.array(sorted(set(choices.micro_batches)))
    kept = kept_micro_batch(profile, choices, global_batch)
    if kept is not None:
        return np.array([kept])
    limit = LARGEST_FREE_MICRO_BATCH if global_batch is None else global_batch
    sizes = {2**i for i in range(limit.bit_length()) if 2**i <= limit}
    if global_batch is not None:
        # A global batch such as 48 or 100 also divides into sizes that are no power of two.
        sizes |= _divisors(global_batch)
    return np.array(sorted(sizes))


def _divisors(number: int) -> set[int]:
    small = {one for one in range(1, math.isqrt(number) + 1) if number % one == 0}
    return small | {number // one for one in small}


def few_micro_batches(sizes: np.ndarray) -> list[int]:
    """Return the micro-batch sizes that layouts which split the model are tried with."""
    if len(sizes) <= MOST_SPLIT_BATCHES:
        return sizes.tolist()
    return [int(size) for size in sizes if size in {2**i for i in range(MOST_SPLIT_BATCHES)}]
