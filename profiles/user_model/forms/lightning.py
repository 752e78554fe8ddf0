"""Files with one LightningModule, run without a Trainer. Imports nothing of Lightning itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

import torch

from ....catalog.errors import UserFileError
from ..checks import Batch, checked_batch, checked_loss, checked_model, described
from ..schedulers import Stepped, configured_schedulers
from ..spec import ModelSpec
from ..workload import Params, Workload, tokens_follow_params, tokens_per_sample
from .lightning_run import names_not_run, samples_of
from .module_class import batch_function, own_default, own_usual_batches
from .stepping import loss_at_backward, same_optimizer

Loss = Callable[[torch.nn.Module, Batch], torch.Tensor]
LOADER = "train_dataloader()"


def lightning_classes(module: ModuleType) -> list[type[torch.nn.Module]]:
    """Return the LightningModule classes that a file defines itself."""
    return [one for one in _own_classes(module) if _has_base(one, "LightningModule")]


def from_lightning(spec: ModelSpec, module: ModuleType) -> Workload:
    """Return the workload of a file with one LightningModule, run without a Trainer.

    The loss is training_step's, the optimizer configure_optimizers'; logging does nothing. Batches
    come from make_batch, the module's or a LightningDataModule's train_dataloader, or `--input`.
    """
    classes = lightning_classes(module)
    if spec.class_name:
        classes = [one for one in classes if one.__name__ == spec.class_name]
    if len(classes) > 1:
        names = [one.__name__ for one in classes]
        raise UserFileError(
            f"{spec.path.name} has {len(classes)} LightningModules: {', '.join(names)}.",
            fix=f"name one of them: {spec.path.name}:{names[-1]}.",
        )
    params = Params(spec.params)
    build = params.bind(classes[0])
    runner = _WithoutTrainer()
    own_batch = getattr(module, "make_batch", None) or spec.inputs
    opened = None if own_batch else _loader_opener(module, params, runner)
    loader = None if opened is None else _loader_function(opened, runner)
    workload = Workload(
        name=spec.name,
        path=spec.path,
        params=dict(spec.params),
        build_model=lambda: runner.follow(checked_model(build(), f"{classes[0].__name__}()")),
        make_batch=loader or batch_function(spec, module, params),
        loader=None if loader is None else LOADER,
        compute_loss=_of_one_tensor(spec, runner.compute_loss),
        build_optimizer=runner.build_optimizer,
        build_dataset=None if opened is None else lambda: runner.dataset_of(opened()),
        build_scheduler=runner.build_scheduler,
        not_run=names_not_run(classes[0]),
        tokens_per_sample=tokens_per_sample(params, module),
        tokens_follow_params=tokens_follow_params(module),
        make_usual_batch=None if loader else own_usual_batches(spec, module, params),
        default_micro_batch=own_default(module) or _batch_size_of(classes[0], spec),
        loader_batch_size=lambda: runner.loader_batch_size,
    )
    params.check_taken(spec.path.name)
    return workload


def _of_one_tensor(spec: ModelSpec, compute_loss: Loss) -> Loss:
    """Return a loss that says so where a batch of one `--input` was to be of several tensors."""

    def compute(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        try:
            return compute_loss(model, batch)
        except ValueError as error:
            if len(spec.inputs) != 1 or "unpack" not in str(error):
                raise
            raise UserFileError(
                f"training_step takes its batch apart, and one --input is one tensor: {error}.",
                fix=f"give --input for each tensor of a batch: --input {spec.inputs[0].text}"
                " --input :int64, if the other is a label.",
            ) from error

    return compute if len(spec.inputs) == 1 else compute_loss


class _WithoutTrainer:
    """A LightningModule's own functions, called as a Trainer would call them."""

    def __init__(self) -> None:
        self._optimizer: torch.optim.Optimizer | None = None
        self._returned: Any = None
        """By configure_optimizers."""
        self.model: torch.nn.Module | None = None
        self.loader_batch_size: int | None = None
        """Of the file's loader, once a batch was read from it."""
        self.loads_lists = False
        """Whether its batches are lists, which training_step gets as they are."""

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
        given: Any = batch
        if isinstance(batch, tuple) and len(batch) == 1 and not self.loads_lists:
            given = batch[0]
        arguments = (given, 0)[: len(inspect.signature(step).parameters)]
        outputs: list[Any] = []
        loss = loss_at_backward(lambda: outputs.append(step(*arguments)))
        if loss is None:
            output = outputs[0]
            loss = output.get("loss") if isinstance(output, Mapping) else output
        return checked_loss(loss, "training_step()")

    def build_optimizer(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Return the optimizer of configure_optimizers."""
        if self.model is None:
            raise RuntimeError("build_optimizer was called before build_model")
        return same_optimizer(self._configured(self.model), list(parameters))

    def dataset_of(self, loader: Any) -> Any:
        """Return a loader's data set, and note in which form its batches come."""
        dataset = samples_of(loader, LOADER)
        if hasattr(dataset, "__len__"):
            self.loads_lists = isinstance(loader.collate_fn([loader.dataset[0]]), list)
        return dataset

    def build_scheduler(self, optimizer: torch.optim.Optimizer, _steps: int) -> tuple[Stepped, ...]:
        """Return the schedules of configure_optimizers.

        Raises:
            UserFileError: they are of another optimizer than the one that trains.
        """
        found = configured_schedulers(self._returned)
        if found and self._optimizer is not optimizer:
            raise UserFileError(
                "configure_optimizers() made its optimizer and its schedule for parameters that"
                " this layout replaces.",
                fix="make them of self.parameters(), or choose a plan of data parallelism.",
            )
        return found

    def _configured(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        if self._optimizer is None:
            configure: Callable[[], Any] = model.configure_optimizers  # pyright: ignore[reportAssignmentType]
            self._returned = configure()
            self._optimizer = _first_optimizer(self._returned)
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
                    fix="return one: Lightning itself takes several in manual optimization alone,"
                    " which its own Trainer runs (--command with --framework lightning); or write"
                    " build_model() and a build_optimizer() that returns them.",
                )
            value = value[0]
        else:
            raise UserFileError(
                f"configure_optimizers() returned {described(configured)}.",
                fix="return a torch.optim.Optimizer.",
            )
    return value


def _loader_opener(
    module: ModuleType, params: Params, runner: _WithoutTrainer
) -> Callable[[], Any] | None:
    """Return what opens the data loader of the module or of the file's DataModule."""
    data_classes = [one for one in _own_classes(module) if _has_base(one, "LightningDataModule")]
    source = params.bind(data_classes[0]) if data_classes else None
    if source is None and not any(
        "train_dataloader" in vars(base)
        for one in lightning_classes(module)
        for base in one.__mro__
        if base.__module__.split(".")[0] not in ("lightning", "pytorch_lightning")
    ):
        return None

    def opened() -> Any:
        holder: Any = source() if source else runner.model
        if source and hasattr(holder, "setup"):
            holder.prepare_data()
            holder.setup("fit")
        loader = holder.train_dataloader()
        runner.loader_batch_size = _size_of(loader)
        return loader

    return opened


def _loader_function(opened: Callable[[], Any], runner: _WithoutTrainer) -> Callable[[int], Batch]:
    """Return make_batch over a data loader."""

    def make_batch(batch_size: int) -> Batch:
        loader = opened()
        samples = [loader.dataset[position % len(loader.dataset)] for position in range(batch_size)]
        batch = loader.collate_fn(samples)
        runner.loads_lists = isinstance(batch, list)
        if isinstance(batch, list):
            batch = tuple(batch)
        return checked_batch(batch, LOADER)

    return make_batch


def _size_of(loader: Any) -> int | None:
    """Return the batch size of a data loader; None where it, or its batch sampler, has no fixed."""
    sampler = getattr(loader, "batch_sampler", None)
    size = getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None)
    return size if isinstance(size, int) and size > 0 else None


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
