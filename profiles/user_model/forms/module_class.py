"""A class with an input shape, or a Hugging Face config, as the same `Workload` as a model file.

Needs only the standard library and torch (and transformers for a config).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch

from ....catalog.errors import UsageError, did_you_mean
from ..checks import Batch, checked_loss, checked_model
from ..spec import InputShape, ModelSpec
from ..workload import (
    Params,
    Workload,
    bind_batch,
    bind_loss,
    bind_optimizer,
    default_micro_batch,
    tokens_follow_params,
    tokens_per_sample,
    usual_batches,
)


def from_class(spec: ModelSpec, module: ModuleType) -> Workload:
    """Return the workload of `model.py:ClassName`.

    With `--input` the loss is output.loss, the output if it is a scalar, cross-entropy of a matrix
    (batch × classes), else the mean of the output. Without, make_batch and compute_loss are the
    file's own.
    """
    name = spec.class_name or ""
    found = getattr(module, name, None)
    if not callable(found):
        classes = [key for key, value in vars(module).items() if _is_module_class(value)]
        raise UsageError(
            f"{spec.path.name} has no class {name}.{did_you_mean(name, classes)}",
            fix=f"use one of {', '.join(classes)}." if classes else "name a torch.nn.Module class.",
        )
    params = Params(spec.params)
    build_model = params.bind(found)
    make_batch = batch_function(spec, module, params)
    own_loss = getattr(module, "compute_loss", None)
    workload = Workload(
        name=spec.name,
        path=spec.path,
        params=dict(spec.params),
        build_model=lambda: checked_model(build_model(), f"{name}()"),
        make_batch=make_batch,
        compute_loss=bind_loss(params, _class_loss if spec.inputs else own_loss, make_batch),
        build_optimizer=bind_optimizer(params, getattr(module, "build_optimizer", None)),
        tokens_per_sample=tokens_per_sample(params, module),
        tokens_follow_params=tokens_follow_params(module),
        make_usual_batch=own_usual_batches(spec, module, params),
        default_micro_batch=own_default(module),
    )
    params.check_taken(spec.path.name)
    return workload


def from_config(spec: ModelSpec) -> Workload:
    """Return the workload of `hf:<folder or config.json>`: no weights, no network."""
    try:
        from . import hugging_face
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise UsageError(
            f"{spec.text} needs the transformers package.", fix="pip install 'gpuplan[hf]'"
        ) from None
    return hugging_face.workload(spec)


def batch_function(spec: ModelSpec, module: ModuleType, params: Params) -> Callable[[int], Batch]:
    """Return a make_batch of the shapes of `--input`, else the file's own.

    Raises:
        UsageError: there is neither.
    """
    if spec.inputs:
        return lambda batch_size: tuple(_tensor(one, batch_size) for one in spec.inputs)
    function = getattr(module, "make_batch", None)
    if callable(function):
        return bind_batch(params, function, "make_batch")
    raise UsageError(
        f"{spec.text} does not say what its inputs look like.",
        fix="give the shape of one sample, such as --input 3,224,224 (or --input 128:int64), once"
        " for each tensor of a batch (:int64 is a label), or write make_batch(batch_size) in the"
        " file.",
    )


def own_usual_batches(
    spec: ModelSpec, module: ModuleType, params: Params
) -> Callable[[int], Batch] | None:
    """Return the file's own make_batch without the params that were given, if it is used."""
    function = getattr(module, "make_batch", None)
    if spec.inputs or not callable(function):
        return None
    return usual_batches(params, function, "make_batch")


def _tensor(given: InputShape, batch_size: int) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, given.dtype)
    shape = (batch_size, *given.shape)
    # Zeros are valid indices for any embedding, so integer inputs need no vocabulary size.
    return (
        torch.randn(shape, dtype=dtype)
        if dtype.is_floating_point
        else torch.zeros(shape, dtype=dtype)
    )


def _class_loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    output = model(**batch) if isinstance(batch, dict) else model(*batch)
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    while isinstance(output, tuple | list | Mapping) and output:
        output = next(iter(output.values())) if isinstance(output, Mapping) else output[0]
    if not isinstance(output, torch.Tensor):
        return checked_loss(output, "the model")
    if output.dim() == 2 and output.shape[1] > 1:
        targets = torch.zeros(output.shape[0], dtype=torch.int64, device=output.device)
        return torch.nn.functional.cross_entropy(output.float(), targets)
    return output.float().mean()


def own_default(module: ModuleType) -> int | None:
    """Return the default batch size of the file's own make_batch, if it has one."""
    function = getattr(module, "make_batch", None)
    return default_micro_batch(function) if callable(function) else None


def _is_module_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, torch.nn.Module)
