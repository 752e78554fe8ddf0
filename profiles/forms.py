"""The other forms of a model file: entry points of DeepView, a LightningModule, a class, a config.

Each becomes the same `Workload` as a file that follows the contract. Needs only the standard
library and torch (and transformers for a Hugging Face config).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from ..catalog.errors import UsageError, UserFileError, did_you_mean
from .checks import Batch, checked_batch, checked_loss, checked_model, described
from .contract import (
    Params,
    Workload,
    bind_batch,
    bind_loss,
    bind_optimizer,
    default_micro_batch,
    tokens_per_sample,
)
from .spec import InputShape, ModelSpec

ENTRY_POINT_PREFIXES = ("deepview_", "skyline_")


def entry_point(module: ModuleType, suffix: str) -> Callable[..., Any] | None:
    """Return the file's DeepView function of this name (or of its older one), if it has one."""
    for prefix in ENTRY_POINT_PREFIXES:
        function = getattr(module, prefix + suffix, None)
        if callable(function):
            return function
    return None


def from_entry_points(spec: ModelSpec, module: ModuleType) -> Workload:
    """Return the workload of a file written for CentML DeepView (docs/providers.md there)."""
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
    build_model = params.bind(functions["model_provider"])
    iteration = _Iteration(params.bind(functions["iteration_provider"], reserved=1))
    workload = Workload(
        name=spec.name,
        path=spec.path,
        params=dict(spec.params),
        build_model=lambda: iteration.follow(
            checked_model(build_model(), "deepview_model_provider()")
        ),
        make_batch=bind_batch(params, functions["input_provider"], "deepview_input_provider"),
        compute_loss=iteration.compute_loss,
        build_optimizer=iteration.build_optimizer,
        tokens_per_sample=tokens_per_sample(params, module),
        default_micro_batch=default_micro_batch(functions["input_provider"]),
    )
    params.check_taken(spec.path.name)
    return workload


def from_class(spec: ModelSpec, module: ModuleType) -> Workload:
    """Return the workload of `model.py:ClassName`.

    Inputs come from the file's make_batch, else from `--input`. Without a compute_loss the loss
    is output.loss, the output if it is a scalar, cross-entropy over the last dimension of a
    matrix (batch × classes), else the mean of the output.
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
    make_batch = _batch_function(spec, module, params)
    workload = Workload(
        name=spec.name,
        path=spec.path,
        params=dict(spec.params),
        build_model=lambda: checked_model(build_model(), f"{name}()"),
        make_batch=make_batch,
        compute_loss=bind_loss(params, getattr(module, "compute_loss", None) or _class_loss),
        build_optimizer=bind_optimizer(params, getattr(module, "build_optimizer", None)),
        tokens_per_sample=tokens_per_sample(params, module),
        default_micro_batch=_default_of(module),
    )
    params.check_taken(spec.path.name)
    return workload


def lightning_classes(module: ModuleType) -> list[type[torch.nn.Module]]:
    """Return the LightningModule classes that a file defines itself."""
    return [one for one in _own_classes(module) if _has_base(one, "LightningModule")]


def from_lightning(spec: ModelSpec, module: ModuleType) -> Workload:
    """Return the workload of a file with one LightningModule, run without a Trainer.

    The loss is training_step's, the optimizer configure_optimizers'; logging does nothing. Batches
    come from make_batch, the module's or a LightningDataModule's train_dataloader, or `--input`.
    """
    classes = lightning_classes(module)
    if len(classes) > 1:
        names = [one.__name__ for one in classes]
        raise UserFileError(
            f"{spec.path.name} has {len(classes)} LightningModules: {', '.join(names)}.",
            fix="keep one in the file, or write build_model() and make_batch().",
        )
    params = Params(spec.params)
    build = params.bind(classes[0])
    runner = _WithoutTrainer()
    own_batch = getattr(module, "make_batch", None) or spec.inputs
    loader = None if own_batch else _loader_function(module, params, runner)
    workload = Workload(
        name=spec.name,
        path=spec.path,
        params=dict(spec.params),
        build_model=lambda: runner.follow(checked_model(build(), f"{classes[0].__name__}()")),
        make_batch=loader or _batch_function(spec, module, params),
        compute_loss=runner.compute_loss,
        build_optimizer=runner.build_optimizer,
        tokens_per_sample=tokens_per_sample(params, module),
        default_micro_batch=_default_of(module) or _batch_size_of(classes[0], spec),
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


class _LossReached(BaseException):
    """Carries the loss out of an iteration when it calls backward."""

    def __init__(self, loss: torch.Tensor) -> None:
        super().__init__()
        self.loss = loss


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
        with _recorded_optimizers(self._optimizers):
            loss = _loss_at_backward(lambda: iteration(*_positional(batch)))
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
        return _same_optimizer(self._optimizers[0], list(parameters))

    def _iteration_of(self, model: torch.nn.Module) -> Callable[..., Any]:
        if self._iteration is None or model is not self._model:
            self.follow(model)
            with _recorded_optimizers(self._optimizers):
                iteration = self._provider(model)
            if not callable(iteration):
                raise UserFileError(
                    f"deepview_iteration_provider() returned {described(iteration)}.",
                    fix="return the function that does one iteration: iteration(*inputs).",
                )
            self._iteration = iteration
        return self._iteration


class _WithoutTrainer:
    """A LightningModule's own functions, called as a Trainer would call them."""

    def __init__(self) -> None:
        self._optimizer: torch.optim.Optimizer | None = None
        self.model: torch.nn.Module | None = None

    def follow(self, model: torch.nn.Module) -> torch.nn.Module:
        """Return the model with its calls to a Trainer answered here."""
        for name in ("log", "log_dict"):
            object.__setattr__(model, name, lambda *_arguments, **_named: None)
        object.__setattr__(model, "manual_backward", lambda loss, *_, **__: loss.backward())
        object.__setattr__(model, "optimizers", lambda *_, **__: self._configured(model))
        object.__setattr__(model, "lr_schedulers", lambda *_, **__: None)
        self.model, self._optimizer = model, None
        return model

    def compute_loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Return the loss of training_step, or what it calls manual_backward on."""
        step: Callable[..., Any] = model.training_step  # pyright: ignore[reportAssignmentType]
        given = batch[0] if isinstance(batch, tuple) and len(batch) == 1 else batch
        arguments = (given, 0)[: len(inspect.signature(step).parameters)]
        outputs: list[Any] = []
        loss = _loss_at_backward(lambda: outputs.append(step(*arguments)))
        if loss is None:
            output = outputs[0]
            loss = output.get("loss") if isinstance(output, Mapping) else output
        return checked_loss(loss, "training_step()")

    def build_optimizer(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Return the optimizer of configure_optimizers."""
        if self.model is None:
            raise RuntimeError("build_optimizer was called before build_model")
        return _same_optimizer(self._configured(self.model), list(parameters))

    def _configured(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        if self._optimizer is None:
            configure: Callable[[], Any] = model.configure_optimizers  # pyright: ignore[reportAssignmentType]
            self._optimizer = _first_optimizer(configure())
        return self._optimizer


def _first_optimizer(configured: Any) -> torch.optim.Optimizer:
    """Return the optimizer in any of the shapes that configure_optimizers may return."""
    value = configured
    while not isinstance(value, torch.optim.Optimizer):
        if isinstance(value, Mapping) and "optimizer" in value:
            value = value["optimizer"]
        elif isinstance(value, tuple | list) and value:
            optimizers = [one for one in value if isinstance(one, torch.optim.Optimizer)]
            if len(optimizers) > 1:
                raise UserFileError(
                    f"configure_optimizers() returned {len(optimizers)} optimizers.",
                    fix="return one; gpuplan plans the training of one model by one optimizer.",
                )
            value = value[0]
        else:
            raise UserFileError(
                f"configure_optimizers() returned {described(configured)}.",
                fix="return a torch.optim.Optimizer.",
            )
    return value


def _loss_at_backward(run: Callable[[], Any]) -> torch.Tensor | None:
    """Run until a backward call and return its tensor; None if there was no such call."""
    original = torch.autograd.backward

    def reached(tensors: Any, *_arguments: Any, **_named: Any) -> None:
        raise _LossReached(tensors if isinstance(tensors, torch.Tensor) else tensors[0])

    torch.autograd.backward = reached
    try:
        run()
    except _LossReached as stop:
        return stop.loss
    finally:
        torch.autograd.backward = original
    return None


@contextmanager
def _recorded_optimizers(made: list[torch.optim.Optimizer]) -> Iterator[None]:
    """Append every optimizer that is made inside to the list."""
    original = torch.optim.Optimizer.__init__

    def record(self: torch.optim.Optimizer, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        made.append(self)

    torch.optim.Optimizer.__init__ = record
    try:
        yield
    finally:
        torch.optim.Optimizer.__init__ = original


def _same_optimizer(
    optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter]
) -> torch.optim.Optimizer:
    """Return the optimizer, or one of its kind if it was made for other parameters."""
    held = {id(one) for group in optimizer.param_groups for one in group["params"]}
    if held <= {id(one) for one in parameters}:
        return optimizer
    takes = inspect.signature(type(optimizer)).parameters
    settings = {key: value for key, value in optimizer.defaults.items() if key in takes}
    return type(optimizer)(parameters, **settings)


def _batch_function(spec: ModelSpec, module: ModuleType, params: Params) -> Callable[[int], Batch]:
    function = getattr(module, "make_batch", None)
    if callable(function):
        return bind_batch(params, function, "make_batch")
    if spec.inputs:
        return lambda batch_size: tuple(_tensor(one, batch_size) for one in spec.inputs)
    raise UsageError(
        f"{spec.text} does not say what its inputs look like.",
        fix="give the shape of one sample, such as --input 3,224,224 (or --input 128:int64), or"
        " write make_batch(batch_size) in the file.",
    )


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


def _loader_function(
    module: ModuleType, params: Params, runner: _WithoutTrainer
) -> Callable[[int], Batch] | None:
    """Return make_batch over the data loader of the module or of the file's DataModule."""
    data_classes = [one for one in _own_classes(module) if _has_base(one, "LightningDataModule")]
    source = params.bind(data_classes[0]) if data_classes else None
    if source is None and not any(
        "train_dataloader" in vars(base)
        for one in lightning_classes(module)
        for base in one.__mro__
        if base.__module__.split(".")[0] not in ("lightning", "pytorch_lightning")
    ):
        return None

    def make_batch(batch_size: int) -> Batch:
        holder: Any = source() if source else runner.model
        if source and hasattr(holder, "setup"):
            holder.prepare_data()
            holder.setup("fit")
        loader = holder.train_dataloader()
        samples = [loader.dataset[position % len(loader.dataset)] for position in range(batch_size)]
        batch = loader.collate_fn(samples)
        if isinstance(batch, list | torch.Tensor):
            batch = tuple(batch) if isinstance(batch, list) else (batch,)
        return checked_batch(batch, "train_dataloader()")

    return make_batch


def _positional(batch: Batch) -> tuple[Any, ...]:
    return tuple(batch.values()) if isinstance(batch, dict) else batch


def _default_of(module: ModuleType) -> int | None:
    function = getattr(module, "make_batch", None)
    return default_micro_batch(function) if callable(function) else None


def _batch_size_of(one: type, spec: ModelSpec) -> int | None:
    """Return the batch_size of a LightningModule's constructor, which its loader then uses."""
    parameter = inspect.signature(one).parameters.get("batch_size")
    size = spec.params.get("batch_size", parameter.default) if parameter else None
    return size if isinstance(size, int) and size > 0 else None


def _own_classes(module: ModuleType) -> list[type[Any]]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]


def _has_base(one: type, name: str) -> bool:
    return any(base.__name__ == name for base in one.__mro__[1:])


def _is_module_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, torch.nn.Module)
