"""Files written for CentML DeepView: providers of a model, its inputs and a whole iteration.

Source: CentML/DeepView.Profile, docs/providers.md. Needs only the standard library and torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch

from ....catalog.errors import UserFileError
from ..checks import Batch, checked_loss, checked_model, described
from ..spec import ModelSpec
from ..workload import (
    Params,
    Workload,
    bind_batch,
    default_micro_batch,
    tokens_follow_params,
    tokens_per_sample,
    usual_batches,
)
from .stepping import loss_at_backward, recorded_optimizers, same_optimizer

ENTRY_POINT_PREFIXES = ("deepview_", "skyline_")


def entry_point(module: ModuleType, suffix: str) -> Callable[..., Any] | None:
    """Return the file's DeepView function of this name (or of its older one), if it has one."""
    for prefix in ENTRY_POINT_PREFIXES:
        function = getattr(module, prefix + suffix, None)
        if callable(function):
            return function
    return None


def from_entry_points(spec: ModelSpec, module: ModuleType) -> Workload:
    """Return the workload of a file written for CentML DeepView."""
    functions: dict[str, Callable[..., Any]] = {}
    for suffix in ("model_provider", "input_provider", "iteration_provider"):
        function = entry_point(module, suffix)
        if function is None:
            raise UserFileError(
                f"{spec.path.name} has no deepview_{suffix}(), but other DeepView entry points.",
                fix=f"add deepview_{suffix}(), or write build_model() and make_batch() instead.",
            )
        functions[suffix] = function
    params = Params(spec.params)
    source, batches = "deepview_input_provider", functions["input_provider"]
    build_model = params.bind(functions["model_provider"])
    iteration = _Iteration(params.bind(functions["iteration_provider"], reserved=1))
    workload = Workload(
        name=spec.name,
        path=spec.path,
        params=dict(spec.params),
        build_model=lambda: iteration.follow(
            checked_model(build_model(), "deepview_model_provider()")
        ),
        make_batch=bind_batch(params, batches, source),
        compute_loss=iteration.compute_loss,
        build_optimizer=iteration.build_optimizer,
        tokens_per_sample=tokens_per_sample(params, module),
        tokens_follow_params=tokens_follow_params(module),
        make_usual_batch=usual_batches(params, batches, source),
        default_micro_batch=default_micro_batch(batches),
    )
    params.check_taken(spec.path.name)
    return workload


class _Iteration:
    """A DeepView iteration, which does zero_grad, forward, backward and step by itself.

    It is run up to its backward call, which tells the loss; the optimizer is the one that it makes.
    So a tracer sees the four parts of a step one by one, as with any other file.
    """

    def __init__(self, provider: Callable[..., Any]) -> None:
        self._provider = provider
        self._model: torch.nn.Module | None = None
        self._iteration: Callable[..., Any] | None = None
        self._optimizers: list[torch.optim.Optimizer] = []

    def follow(self, model: torch.nn.Module) -> torch.nn.Module:
        """Forget the model before and return this one."""
        self._model, self._iteration, self._optimizers = model, None, []
        return model

    def compute_loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Return what the iteration calls backward on."""
        iteration = self._iteration_of(model)
        with recorded_optimizers(self._optimizers):
            loss = loss_at_backward(lambda: iteration(*_positional(batch)))
        if loss is None:
            raise UserFileError(
                "The iteration of deepview_iteration_provider() never called backward().",
                fix="compute the loss in it and call loss.backward() before optimizer.step().",
            )
        return checked_loss(loss, "deepview_iteration_provider()")

    def build_optimizer(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Return the optimizer that deepview_iteration_provider makes for the model."""
        if self._model is not None:
            self._iteration_of(self._model)
        if len(self._optimizers) != 1:
            raise UserFileError(
                f"deepview_iteration_provider() makes {len(self._optimizers)} optimizers.",
                fix="make one torch.optim optimizer in it, before it returns the iteration.",
            )
        return same_optimizer(self._optimizers[0], list(parameters))

    def _iteration_of(self, model: torch.nn.Module) -> Callable[..., Any]:
        if self._iteration is None or model is not self._model:
            self.follow(model)
            with recorded_optimizers(self._optimizers):
                iteration = self._provider(model)
            if not callable(iteration):
                raise UserFileError(
                    f"deepview_iteration_provider() returned {described(iteration)}.",
                    fix="return the function that does one iteration: iteration(*inputs).",
                )
            self._iteration = iteration
        return self._iteration


def _positional(batch: Batch) -> tuple[Any, ...]:
    return tuple(batch.values()) if isinstance(batch, dict) else batch
