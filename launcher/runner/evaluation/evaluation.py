"""Evaluation while a run trains: on every sample of an own data set once, whatever the layout.

    def build_eval_dataset():
        return …

    def compute_metrics(model, batch):  # without it: the loss
        return {"loss": …, "accuracy": …}

Each number is a mean over the samples of a batch; the result is the mean over all samples.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.utils.data import DataLoader

from ....catalog.errors import UsageError, UserFileError
from ....profiles.user_model.checks import Batch, checked_batch, described
from ....profiles.user_model.placing import placed
from ....profiles.user_model.workload import Workload, bound_function
from ..build import Trainer
from ..input.batches import has_places
from ..input.held_out import same_samples_words
from ..input.samples import Place, Seeded, mixed_seed, of_dataset, seed_everything
from ..job import Job
from ..lightning.validation import ValidationMetrics, has_validation, validation_samples
from ..parallel.parallelize import LossModule, SteadyDDP
from ..parallel.pipeline_parallel import StagedModel
from ..pipeline.passes import StagedPass
from ..processes.processes import Processes
from ..reporting.lines import open_lines
from ..reporting.metrics import say
from ..training.loss_weights import loss_weights
from ..training.numerics import input_dtype
from ..training.step import WholeModel
from .same_calls import MetricsFunction, with_same_calls

EVALUATIONS_FILE = "evaluations.jsonl"
DATASET, METRICS = "build_eval_dataset", "compute_metrics"
LOSS = "loss"


class Evaluation:
    """The evaluations of a run, and which of them was the best; part of its checkpoints."""

    def __init__(
        self, job: Job, workload: Workload, trainer: Trainer, processes: Processes
    ) -> None:
        self._job = job
        self._workload = workload
        self._trainer = trainer
        self._processes = processes
        self._every = job.training.eval_every_steps
        self._weights = loss_weights(workload, trainer.execution.layout, processes.device)
        self.found: dict[str, float] = {}
        """Numbers of the last evaluation."""
        self.best_step: int | None = None
        self._best = math.inf
        self._worse = 0
        """Evaluations since the best."""
        if self._every is not None:
            dataset = _dataset(workload, trainer, seed=job.seed)
            # Random numbers that a sample is read with are others than where it is trained on.
            self._samples = Seeded(dataset, mixed_seed(job.seed, DATASET))
            self._metrics = _metrics_function(workload, trainer.model, dataset)
            if not isinstance(self._metrics, ValidationMetrics):
                layout = trainer.execution.layout
                self._metrics = with_same_calls(self._metrics, layout, processes)
        elif processes.is_first and has_validation(workload, trainer.model):
            say(f"{workload.name} has a validation_step(): it runs with --eval-every STEPS")

    def warn_of_same_samples(self, trained: Seeded | None) -> None:
        """Say so where the evaluation is on samples that are trained on.

        Args:
            trained: data set of the run; None where it has no samples by number.
        """
        if self._every is None or trained is None or not self._processes.is_first:
            return
        words = same_samples_words(trained, self._samples)
        if words is not None:
            say(f"warning: {words}")

    def is_due(self, step: int) -> bool:
        """Return whether to evaluate after so many steps."""
        return self._every is not None and (step % self._every == 0 or step == self._job.steps)

    def is_left(self, step: int) -> bool:
        """Return whether a run that ends before its last step, after this one, is to evaluate."""
        return self._every is not None and not self.is_due(step)

    @property
    def ends_run(self) -> bool:
        """Return whether the loss has not fallen for as many evaluations as are waited for."""
        patience = self._job.training.patience
        return patience is not None and self._worse >= patience

    def run(self, step: int, beat: Callable[[], None]) -> bool:
        """Evaluate, and write what was found; return whether it is the best so far.

        Args:
            step: steps that are done.
            beat: called for every batch, to show that this process lives.
        """
        found = self.found = self._over_all_samples(beat)
        value = found.get(LOSS, math.nan)
        is_best = value < self._best
        if is_best:
            self._best, self.best_step, self._worse = value, step, 0
        else:
            self._worse += 1
        if self.ends_run and self._processes.is_first:
            say(self._no_better())
        if self._processes.is_first:
            line = {"step": step, "time": time.time(), **found, "best_step": self.best_step}
            with open_lines(self._job.out_dir / EVALUATIONS_FILE) as file:
                file.write(json.dumps(_plain(line)) + "\n")
            words = ", ".join(f"{name} {number:.4g}" for name, number in found.items())
            say(f"evaluation after step {step}: {words}{' (best so far)' if is_best else ''}")
        return is_best

    def _no_better(self) -> str:
        return f"the loss has not fallen for {self._worse} evaluations: the run ends"

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it."""
        return {"best": self._best, "best_step": self.best_step, "worse": self._worse}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take it back."""
        self._best, self._worse = float(state["best"]), int(state["worse"])
        self.best_step = state["best_step"]
        if self.ends_run and self._processes.is_first:
            say(f"{self._no_better()}; a larger --patience goes on")

    def _over_all_samples(self, beat: Callable[[], None]) -> dict[str, float]:
        """Return the mean of every number over all samples, the same on every process."""
        sums: dict[str, Tensor] = {}
        if isinstance(self._metrics, ValidationMetrics):
            self._metrics.batch_number = 0
        with at_rest(self._trainer) as wrapped, torch.no_grad():
            for batch, samples in self._batches():
                beat()
                for name, (total, weight) in self._of_batch(wrapped, batch, samples).items():
                    both = torch.stack([total, weight])
                    sums[name] = sums[name] + both if name in sums else both
        return self._means(sums)

    def _of_batch(
        self, wrapped: LossModule | StagedPass, batch: Batch, samples: int
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Return, by name, (sum, weight) of a batch; a repeated one of no sample weighs nothing."""
        metrics = wrapped.measured(batch, self._metrics)
        samples = samples if wrapped.knows else 0
        device = self._processes.device
        found: dict[str, tuple[Tensor, Tensor]] = {}
        for name, value in metrics.items():
            number = torch.as_tensor(value, device=device).detach().double().reshape(())
            weight = torch.tensor(float(samples), dtype=torch.float64, device=device)
            if samples and name == LOSS and self._weights is not None:
                weight = self._weights.of_batch(batch)
            total = number * weight if samples else torch.zeros_like(number)
            found[name] = (total, weight)
        return found

    def _means(self, sums: dict[str, Tensor]) -> dict[str, float]:
        names = self._names_of_all(sums)
        nothing = torch.zeros(2, dtype=torch.float64, device=self._processes.device)
        table = torch.stack([sums.get(name, nothing) for name in names])
        if self._processes.world > 1:
            # Ranks that split layers count the same batches alike: the quotient stays.
            dist.all_reduce(table)
        return {
            name: total / weight if weight else math.nan
            for name, (total, weight) in zip(names, table.tolist(), strict=True)
        }

    def _names_of_all(self, sums: dict[str, Tensor]) -> list[str]:
        """Return the names that any process has: some batches may have others than the rest."""
        told: list[Any] = [list(sums)] * self._processes.world
        if self._processes.world > 1:
            dist.all_gather_object(told, list(sums), self._processes.host_group)
        return sorted({name for names in told for name in names})

    def _batches(self) -> Iterator[tuple[Batch, int]]:
        """Yield this rank's batches, and how many samples each has.

        All ranks run as many: one that has none left repeats its first, which then has 0 samples.
        """
        execution = self._trainer.execution
        rank, ranks, size = (
            self._trainer.position.data,
            execution.layout.data,
            execution.micro_batch,
        )
        dataset = self._samples.of_user
        count = len(dataset)
        own = [
            [Place(0, place) for place in range(begin, min(begin + size, count))]
            for begin in range(rank * size, count, ranks * size)
        ]
        turns = -(-count // (ranks * size))
        idle = [[Place(0, place) for place in range(min(size, count))]] * (turns - len(own))
        loader: DataLoader[Any] = DataLoader(
            self._samples,
            batch_sampler=own + idle,  # pyright: ignore[reportArgumentType]
            collate_fn=of_dataset(dataset, "collate_fn"),
        )
        dtype = input_dtype(execution)
        for turn, found in enumerate(loader):
            batch = checked_batch(tuple(found) if isinstance(found, list) else found, DATASET)
            samples = len(own[turn]) if turn < len(own) else 0
            yield placed(batch, self._processes.device, dtype), samples


@contextmanager
def at_rest(trainer: Trainer) -> Iterator[LossModule | StagedPass]:
    """Yield the module that holds the model, which does not train meanwhile."""
    wrapped = _inner(trainer)
    trainer.buffers.take_first()
    wrapped.eval()
    try:
        yield wrapped
    finally:
        wrapped.train()
        for module in wrapped.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def _metrics_function(workload: Workload, model: nn.Module, dataset: Any) -> MetricsFunction:
    own = bound_function(workload, METRICS, reserved=2)
    if own is None and has_validation(workload, model):
        return ValidationMetrics(dataset)
    if own is None:
        return lambda model, batch: {LOSS: workload.compute_loss(model, batch)}
    as_given: Callable[[Batch], Any] = getattr(workload.make_batch, "as_given", lambda one: one)

    def metrics(model: nn.Module, batch: Batch) -> Mapping[str, Any]:
        found = own(model, as_given(batch))
        if isinstance(found, Mapping) and found:
            return found
        raise UserFileError(
            f"{METRICS}() returned {described(found)}, not a dictionary of numbers.",
            fix='return for example {"loss": loss, "accuracy": (guess == label).float().mean()}.',
        )

    return metrics


def _dataset(workload: Workload, trainer: Trainer, *, seed: int) -> Any:
    """Return the data set of evaluations, built with the random numbers that the other one has.

    So a file that splits its samples at random in both functions splits them in the same way.

    Raises:
        UsageError: there is none.
        UserFileError: it has no length.
    """
    build = bound_function(workload, DATASET, reserved=0)
    source = DATASET
    if build is None and has_validation(workload, trainer.model):
        build, source = partial(validation_samples, workload, trainer.model), "val_dataloader"
    if build is None:
        raise UsageError(
            f"--eval-every is given, and {workload.name} has no {DATASET}().",
            fix=f"write {DATASET}() (docs/model-file.md), or leave --eval-every out.",
        )
    seed_everything(seed)
    dataset = build()
    if not has_places(dataset) or not len(dataset):
        raise UserFileError(
            f"{source}() returned {described(dataset)}, not a data set with samples by number.",
            fix="return a torch.utils.data.Dataset that has a length.",
        )
    return dataset


def _inner(trainer: Trainer) -> LossModule | StagedPass:
    """Return the module that holds the model and its loss, without DDP, which only trains."""
    gradients = trainer.step.gradients
    if isinstance(gradients, StagedModel):
        return gradients.passes
    assert isinstance(gradients, WholeModel)
    module = gradients.module
    inner = module.inner if isinstance(module, SteadyDDP) else module
    assert isinstance(inner, LossModule)
    return inner


def _plain(line: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in line.items()
    }
