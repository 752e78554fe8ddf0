"""Tensor and sequence parallelism by the plan that a model itself gives.

Hugging Face models carry one (`tp_plan`). Any other file may define

    def tensor_parallel_plan():
        return {"blocks.*.attention.query": "colwise", "blocks.*.attention.out": "rowwise"}

with the names of modules (`*` stands for any part of a name) and how each is split:

| word | the module | under sequence parallelism |
|---|---|---|
| colwise | a linear split by its outputs, which stay split | the same |
| rowwise | a linear split by its inputs; results are summed | results are scattered |
| colwise_gather_output | a linear split by its outputs, which are gathered | inputs too |
| embedding | an embedding split by its rows; results are summed | results are scattered |
| sequence | a norm or dropout, not split | works on a part of the sequence (dimension 1) |
| gather | holds layers split by outputs that share one input | gathers that input first |

Instead of a word, a value may be a `torch.distributed.tensor.parallel.ParallelStyle`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from ....catalog.errors import UserFileError, did_you_mean
from ....profiles.user_model.several_optimizers import Optimizers
from ....profiles.user_model.structure.ties import tied_weights

WORDS = (
    "colwise",
    "rowwise",
    "colwise_gather_output",
    "embedding",
    "sequence",
    "gather",
)


HUGGING_FACE_WORDS = {"embedding_rowwise": "embedding", "colwise_rep": "colwise_gather_output"}
"""Words of transformers' plans for which this file has others."""


def split_layers(
    model: nn.Module, plan: Mapping[str, Any], mesh: DeviceMesh, *, sequence_parallel: bool
) -> None:
    """Split the layers of a model over the tensor ranks, in place.

    Raises:
        UserFileError: the plan names no module, or a way to split that there is none.
    """
    styles: dict[str, ParallelStyle] = {}
    for pattern, word in plan.items():
        names = [name for name, _ in model.named_modules() if fnmatchcase(name, pattern)]
        if not names:
            raise UserFileError(
                f"The tensor-parallel plan names {pattern}, and the model has no such module.",
                fix="name modules as model.named_modules() does; * stands for any part of a name.",
            )
        style = style_of(word, sequence_parallel=sequence_parallel, where=pattern)
        styles |= dict.fromkeys(names, style) if style is not None else {}
    ties = tied_weights(model)
    parallelize_module(model, mesh, styles)
    for names in ties:
        _tie_again(model, names)


def _tie_again(model: nn.Module, names: Sequence[str]) -> None:
    """Make tensors one weight again that were one before each module was split."""
    places = [name.rpartition(".")[::2] for name in names]
    held = [model.get_submodule(path)._parameters[name] for path, name in places]
    layouts = {one.placements if isinstance(one, DTensor) else None for one in held}
    if len(layouts) > 1:
        raise UserFileError(
            f"{names[0]} and {names[1]} are one weight (tied), and the tensor-parallel plan splits"
            " them in two ways.",
            fix="split both alike, such as 'embedding' and 'colwise_gather_output'.",
        )
    for path, name in places:
        model.get_submodule(path)._parameters[name] = held[0]


def style_of(word: Any, *, sequence_parallel: bool, where: str) -> ParallelStyle | None:
    """Return torch's style for a word of a plan; None where nothing is to be done.

    Raises:
        UserFileError: the word is not known.
    """
    if isinstance(word, ParallelStyle):
        return word
    outside = Shard(1) if sequence_parallel else Replicate()
    styles: dict[str, ParallelStyle | None] = {
        "colwise": ColwiseParallel(),
        "rowwise": RowwiseParallel(output_layouts=outside),
        "colwise_gather_output": ColwiseParallel(input_layouts=outside, output_layouts=Replicate()),
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=outside),
        "sequence": SequenceParallel() if sequence_parallel else None,
        "gather": WholeFirstInput(outside),
    }
    word = HUGGING_FACE_WORDS.get(word, word)
    if word not in styles:
        raise UserFileError(
            f"The tensor-parallel plan says {word!r} of {where}.{did_you_mean(str(word), WORDS)}",
            fix=f"use one of {', '.join(WORDS)}.",
        )
    return styles[word]


class WholeFirstInput(ParallelStyle):
    """Makes the first input of a module whole on every rank, however many others it takes.

    It stays a DTensor: the gradients of all layers that read it are then summed over the ranks in
    one collective instead of one for each layer.
    """

    def __init__(self, given: Placement) -> None:
        super().__init__()
        self._given = given

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def gather(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            if not inputs:
                return inputs
            first = inputs[0]
            if not isinstance(first, DTensor):
                first = DTensor.from_local(first, device_mesh, (self._given,), run_check=False)
            return (first.redistribute(device_mesh, (Replicate(),)), *inputs[1:])

        module.register_forward_pre_hook(gather)
        return module


def step_by_mesh(optimizer: torch.optim.Optimizer) -> None:
    """Let an optimizer update the tensors of every mesh by themselves, its groups as they are.

    It updates the tensors of one group in one call, and torch has no call for tensors that are
    spread over different meshes. So each group is several while it steps, and one again for those
    who set rates by group, such as the schedule of a file.
    """
    if isinstance(optimizer, Optimizers):
        for one in optimizer:
            step_by_mesh(one)
        return
    if all(len(_by_mesh(group["params"])) < 2 for group in optimizer.param_groups):
        return
    own = optimizer.step

    def step(self: torch.optim.Optimizer, *arguments: Any, **named: Any) -> Any:
        whole = self.param_groups
        parts = [
            [{**group, "params": members} for members in _by_mesh(group["params"])]
            for group in whole
        ]
        self.param_groups = [one for of_group in parts for one in of_group]
        try:
            return own(*arguments, **named)
        finally:
            for group, of_group in zip(whole, parts, strict=True):
                # What an optimizer keeps in its groups, such as a count of its own.
                group |= {name: of_group[0][name] for name in of_group[0] if name != "params"}
            self.param_groups = whole

    # A method, not a function: schedules of torch wrap it as one.
    optimizer.step = MethodType(step, optimizer)


def _by_mesh(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Return the parameters of each mesh; one list of none where there are none."""
    found: dict[Any, list[nn.Parameter]] = {}
    for parameter in parameters:
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        found.setdefault(mesh, []).append(parameter)  # pyright: ignore[reportArgumentType]
    return list(found.values()) or [[]]
