"""From traced steps to the Profile: totals, block groups, the optimizer's own numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

import torch
from torch import nn

from ..compared import knows_growth
from ..profile import (
    Affine,
    BatchTensor,
    BlockGroup,
    FrozenLinears,
    Kernel,
    Linear,
    OptimizerFacts,
    ParameterTensor,
    Profile,
    StepTrace,
)
from ..user_model.several_optimizers import optimizer_name
from ..user_model.structure.blocks import BlockRun
from ..user_model.structure.frozen import frozen_linear_weights
from ..user_model.structure.tensor_plan import tensor_plan_kind, tensor_plan_of
from ..user_model.structure.ties import tied_blocks, tied_modules
from ..user_model.workload import Workload
from .assemble import PairedRuns
from .kernels.kernel_numbers import law
from .model.building import Built
from .recorded import FileFacts
from .recording import storages as rec

NAMES_OF_OPTIMIZERS = {"adamw8bit": "adamw8bit", "adam8bit": "adamw8bit"}
PRECISION_OF_AUTOCAST = {torch.float16: "fp16-amp", torch.bfloat16: "bf16-amp"}


def make_profile(
    workload: Workload, facts: FileFacts, runs: list[PairedRuns], steps: list[StepTrace]
) -> Profile:
    """Return the Profile of these steps."""
    built = runs[0].built
    parameters = list(built.model.parameters())
    trainable = sum(p.numel() for p in parameters if p.requires_grad)
    crossed = _crossed(steps)
    unused = sum(p.numel() for p in built.kinds.unused)
    boundary = next((run for run in runs if run.numerics == "amp16"), runs[0])
    return Profile(
        name=workload.name,
        source_hash="",
        params=workload.params,
        torch_version=torch.__version__.split("+")[0],
        parameters=sum(p.numel() for p in parameters),
        trainable_parameters=trainable,
        unused_parameters=unused,
        sparse_parameters=sum(p.numel() for p in built.kinds.sparse),
        parameter_tensors=len(parameters),
        blocks=tuple(_groups(boundary, steps)),
        root_tensors=tensors_of(_outside_blocks(built), unused=built.kinds.unused),
        flops=model_flops(_most_fused(steps)),
        tokens_per_sample=workload.tokens_per_sample,
        batch_bytes=law([step.batch_bytes for step in runs[0].steps], runs[0].sizes),
        batch_tensors=same_tensors(runs[0]),
        file_precision=_file_precision(facts.autocast, built),
        file_compiles=facts.compiles,
        loss_in_model=facts.loss_in_model,
        returns_logits=facts.loss_in_model and facts.returns_logits,
        default_micro_batch=workload.loader_batch_size() or workload.default_micro_batch,
        optimizer=_optimizer_facts(built, steps[0], trainable - unused),
        tensor_plan=tensor_plan_kind(tensor_plan_of(workload, built.model)),
        tied_modules=tied_modules(built.model, tensor_plan_of(workload, built.model)),
        tied_blocks=tied_blocks(built.model),
        frozen_linears=_frozen_linears(built.model),
        steps=tuple(steps),
        synced_norms=tuple(_synced_norms(built.model)),
        mixes_samples=_mixes_samples(crossed),
        warnings=facts.warnings,
        notes=(
            *facts.warnings,
            *facts.notes,
            *built.kinds.notes(built.model),
            *_notes(crossed, steps),
        ),
    )


def _synced_norms(model: nn.Module) -> Iterator[int]:
    for module in model.modules():
        if isinstance(module, nn.SyncBatchNorm) and module.training:
            yield module.num_features


def same_tensors(run: PairedRuns) -> tuple[BatchTensor, ...]:
    """Return the tensors of a batch whose samples have one shape at both sizes."""
    small, large = run.small.batch_tensors, run.large.batch_tensors
    return small if small == large else ()


def tensors_of(
    parameters: Iterable[nn.Parameter], *, unused: Iterable[nn.Parameter]
) -> tuple[ParameterTensor, ...]:
    """Return the shapes of parameters as FSDP shards them; a scalar is one row.

    Args:
        parameters: of one unit.
        unused: those that get no gradient, of this unit or others.
    """
    left_out = set(map(id, unused))
    return tuple(
        ParameterTensor(
            rows=p.shape[0] if p.dim() else 1,
            row_elements=prod(p.shape[1:]),
            trainable=p.requires_grad and id(p) not in left_out,
        )
        for p in parameters
    )


def _outside_blocks(built: Built) -> list[torch.nn.Parameter]:
    inside = {id(p) for run in built.blocks for module in run.modules for p in module.parameters()}
    return [p for p in built.model.parameters() if id(p) not in inside]


def model_flops(step: StepTrace) -> Affine:
    """Return the FLOPs of forward and backward as the model needs them.

    The backward kernel of fused attention also computes the scores again; that fifth product is in
    its `Kernel.flops` but not here: attention counts twice its forward pass, as in MFU. What the
    file itself runs again is not here either.
    """
    fused = 3 if _trains_attention(step) else 1
    return Affine.total(
        kernel.flops.times(fused if kernel.kind == "attention" else 1)
        for kernel in _kernels(step, ("forward", "backward"))
        if not (kernel.rerun or (kernel.kind == "attention" and kernel.backward))
    )


def _frozen_linears(model: nn.Module) -> FrozenLinears | None:
    sizes = [weight.numel() for weight in frozen_linear_weights(model)]
    if not sizes:
        return None
    return FrozenLinears(count=len(sizes), parameters=sum(sizes), largest=max(sizes))


def _crossed(steps: list[StepTrace]) -> dict[str, list[tuple[str | None, Kernel]]]:
    """Return what computes something of pairs of samples → its kernels, each with its block."""
    found: dict[str, list[tuple[str | None, Kernel]]] = {}
    for step in steps:
        for segment in step.segments:
            for kernel in segment.kernels:
                if segment.phase != "optimizer" and _crosses(kernel):
                    name = kernel.module or "the loss"
                    found.setdefault(name, []).append((segment.block, kernel))
    return found


def _crosses(kernel: Kernel) -> bool:
    if kernel.kind == "gemm":
        return sum(size.grows for size in kernel.dims.values()) > 1
    return any(size.compares_samples for size in (*kernel.dims.values(), kernel.flops))


def _mixes_samples(crossed: dict[str, list[tuple[str | None, Kernel]]]) -> bool:
    """Return whether the loss is made of pairs of samples.

    In a block, what is computed across samples dispatches them, to experts for one. Outside it is
    mostly a matrix of similarities or distances.
    """
    return any(block is None for kernels in crossed.values() for block, _ in kernels)


def _notes(
    crossed: dict[str, list[tuple[str | None, Kernel]]], steps: list[StepTrace]
) -> list[str]:
    """Return what a reader of this Profile must know.

    What that means for the micro-batch of a plan is told with the plans.
    """
    if not crossed:
        return []
    names = ", ".join(sorted(crossed))
    doubt = "" if knows_growth(steps) else ", and are right only near the traced sizes"
    return [
        f"{names} compares the samples of a micro-batch with each other: its FLOPs and its memory"
        f" grow with the square of the micro-batch{doubt}"
    ]


def _most_fused(steps: list[StepTrace]) -> StepTrace:
    """Return the step to count FLOPs in: 16-bit attention is fused, where causal counts half."""
    return next((step for step in steps if step.numerics != "fp32"), steps[0])


def _trains_attention(step: StepTrace) -> bool:
    return any(k.kind == "attention" and k.backward for s in step.segments for k in s.kernels)


def _kernels(step: StepTrace, phases: tuple[str, ...]) -> list[Kernel]:
    return [
        kernel
        for index in step.schedule
        if step.segments[index].phase in phases
        for kernel in step.segments[index].kernels
    ]


def _groups(runs: PairedRuns, steps: list[StepTrace]) -> list[BlockGroup]:
    groups: list[BlockGroup] = []
    first_block = 0
    for run in runs.built.blocks:
        groups.append(_group(run, first_block, runs, steps))
        first_block += len(run.modules)
    return groups


def _group(run: BlockRun, first_block: int, runs: PairedRuns, steps: list[StepTrace]) -> BlockGroup:
    parameters = list(run.first.parameters())
    unused = _unused_in_first(run, runs.built)
    boundary = [step.recorder.boundary_bytes.get(first_block, 0) for step in runs.steps]
    attention = [
        kernel
        for step in steps
        for segment in step.segments
        if segment.block == run.name
        for kernel in segment.kernels
        if kernel.kind == "attention"
    ]
    return BlockGroup(
        name=run.name,
        class_name=type(run.first).__name__,
        count=len(run.modules),
        parameters=sum(p.numel() for p in parameters),
        trainable_parameters=sum(p.numel() for p in parameters if p.requires_grad),
        unused_parameters=sum(p.numel() for p in unused),
        parameter_tensors=len(parameters),
        boundary_bytes=law(boundary, runs.sizes),
        tensors=tensors_of(parameters, unused=unused),
        linears=linears_of(run.first),
        attention_heads=int(attention[0].dims["heads"].base) if attention else None,
        attention_kv_heads=int(attention[0].dims["kv_heads"].base) if attention else None,
    )


def _unused_in_first(run: BlockRun, built: Built) -> list[nn.Parameter]:
    """Return the first block's parameters of which some block of the run gets no gradient.

    Equal blocks are stored once: what all of them train counts there, the rest in the root.
    """
    left_out = set(map(id, built.kinds.unused))
    of_all = zip(*(module.parameters() for module in run.modules), strict=True)
    return [same[0] for same in of_all if any(id(p) in left_out for p in same)]


def _file_precision(autocast: torch.dtype | None, built: Built) -> str | None:
    if autocast is not None:
        return PRECISION_OF_AUTOCAST.get(autocast)
    dtypes = {p.dtype for p in built.model.parameters()}
    return "bf16" if dtypes == {torch.bfloat16} else None


def _optimizer_facts(built: Built, step: StepTrace, trained: int) -> OptimizerFacts:
    names = [name.lower() for name in optimizer_name(built.optimizer).split("+")]
    kernels = _kernels(step, ("optimizer",))
    moved = [k.bytes_read for k in kernels] + [k.bytes_written for k in kernels]
    state = sum(t.numel() * t.element_size() for t in built.optimizer_state())
    return OptimizerFacts(
        name="+".join(NAMES_OF_OPTIMIZERS.get(name, name) for name in names),
        state_bytes_per_parameter=state / trained,
        step_bytes_per_parameter=sum(each.base for each in moved) / trained,
        step_bytes_per_sample=sum(each.per_sample for each in moved),
        temporary_bytes_per_parameter=_temporary_bytes(step) / trained,
        launches=sum(k.launches for k in kernels),
    )


def _temporary_bytes(step: StepTrace) -> int:
    """Return the most that is alive at once of what the optimizer step makes and drops."""
    memory = step.memory
    changes: list[tuple[int, int]] = []
    for row, instance in enumerate(memory.instance):
        if instance < 0 or step.segments[step.schedule[instance]].phase != "optimizer":
            continue
        if memory.category[row] == rec.TEMPORARY and memory.death_tick[row] < memory.end_tick:
            changes.append((memory.birth_tick[row], memory.bytes_base[row]))
            changes.append((memory.death_tick[row], -memory.bytes_base[row]))
    alive = most = 0
    for _, change in sorted(changes):
        alive += change
        most = max(most, alive)
    return most


def linears_of(block: nn.Module) -> tuple[Linear, ...]:
    """Return the linear layers of a block, with their names in it."""
    return tuple(
        Linear(
            name=name,
            in_features=layer.in_features,
            out_features=layer.out_features,
            parameters=sum(p.numel() for p in layer.parameters(recurse=False)),
        )
        for name, layer in block.named_modules()
        if isinstance(layer, nn.Linear)
    )
