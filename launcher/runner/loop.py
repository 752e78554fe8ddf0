"""All steps of a run: batches, steps, checkpoints, metrics, signals, and why it ends."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import Any

from ...profiles.user_model.checks import Batch
from ...profiles.user_model.workload import Workload
from .build import Trainer, job_facts
from .checkpoint.checkpoint import Checkpoints, saved_facts
from .checkpoint.contents import Contents, SmallState
from .checkpoint.own_state import open_own_state
from .evaluation.evaluation import Evaluation
from .evaluation.sampling import Sampling
from .input.feed import Feed
from .input.samples import seed_everything
from .job import Job
from .lightning.batch_numbers import BatchNumbers
from .processes.control import Agreed, Control
from .processes.processes import Processes
from .processes.stopping import Stopping
from .reporting.metrics import Heartbeat, say
from .reporting.outcome import Outcome
from .reporting.profiling import StepProfiler
from .reporting.report import Report
from .reporting.slow_ranks import name_slow_ranks
from .reporting.step_numbers import StepNumbers
from .training.not_finite import (
    MOST_REWINDS,
    NotFiniteError,
    Rewinds,
    loss_not_finite,
    weights_not_finite,
)
from .training.numerics import all_finite
from .training.schedule import Schedule, open_schedule
from .training.step import PartTimes
from .training.trained_parameters import TrainedParameters
from .training_options import REWIND

SETTLED_STEPS = 3
"""Steps of a run that choose kernels and make the optimizer's state; no time of theirs counts."""
SLOW_RANK_EVERY = 50


def train(job: Job, workload: Workload, trainer: Trainer, processes: Processes) -> Outcome:
    """Run the steps of a job, from its newest checkpoint on.

    Raises:
        LossNotFiniteError: the loss is no number; the checkpoint before it is kept.
        WeightsNotFiniteError: a weight is no number; no checkpoint of it is kept.
        UsageError, UserFileError, GpuplanError: checkpoints or data cannot be used.
    """
    return Loop(job, workload, trainer, processes).run()


class Loop:
    """The steps of one process."""

    def __init__(
        self, job: Job, workload: Workload, trainer: Trainer, processes: Processes
    ) -> None:
        self._job = job
        self._workload = workload
        self._trainer = trainer
        self._processes = processes
        self._checkpoints = Checkpoints(job.checkpoints, job.checkpoint, processes)
        self._control = self._new_control()
        self._rewinds = Rewinds()
        self._parts = PartTimes(processes.device)
        self._heartbeat = Heartbeat(job.out_dir, processes.rank)
        self._profiler = StepProfiler(job, processes.device, is_first=processes.is_first)
        self._stopping = Stopping()
        self._began_s = time.perf_counter()
        self._before_s = 0.0
        """How long the run had trained when its checkpoint was written."""
        self._outcome = Outcome(step=0, stopped=False, elapsed_s=0.0)
        self._numbers = StepNumbers(self._outcome, self._profiler)
        self._begun_step = 0
        self._contents: Contents
        self._trained = TrainedParameters(trainer.model, alone=processes.world == 1)
        self._batch_numbers = BatchNumbers(
            workload, trainer.model, trainer.step.gradients, trainer.execution.grad_accum
        )
        self._own = open_own_state(workload, trainer.model, trainer.optimizer)
        self._schedule: Schedule
        self._evaluation: Evaluation
        self._sampling: Sampling
        self._feed = Feed(job, workload, trainer, processes)

    def run(self) -> Outcome:
        """Run until the last step, a signal, or an error."""
        self._heartbeat.beat(0)
        self._checkpoints.open()
        self._schedule = self._open_schedule()
        self._evaluation = Evaluation(self._job, self._workload, self._trainer, self._processes)
        self._sampling = Sampling(self._job, self._workload, self._trainer, self._processes)
        self._contents = self._open_contents()
        self._outcome.step = self._resume()
        self._heartbeat.beat(self._outcome.step, at_once=True)
        self._feed.open(self._place)
        if self._processes.is_first:
            self._feed.say_amount()
            self._evaluation.warn_of_same_samples(self._feed.dataset)
            world = self._processes.world
            self._numbers.report = Report(self._job, self._workload, self._trainer, world)
        failed = True
        with self._stopping.listening():
            try:
                self._all_steps()
                failed = False
            except BaseException as error:
                if not isinstance(error, NotFiniteError):
                    self._report_finished_step()
                self._checkpoints.rescue()
                raise
            finally:
                if self._numbers.report is not None:
                    self._numbers.report.close(failed=failed)
        self._outcome.elapsed_s = self._before_s + self._elapsed_s()
        return self._outcome

    def _all_steps(self) -> None:
        """Run the steps; after a divergence again from the newest checkpoint, where that is asked.

        Raises:
            NotFiniteError: nothing else is asked, or it happened too often.
        """
        self._began_s = time.perf_counter()
        while True:
            try:
                return self._steps()
            except NotFiniteError as error:
                if self._job.training.on_nan != REWIND or not self._rewinds.may_go_back:
                    raise
                self._go_back(error)

    def _go_back(self, error: NotFiniteError) -> None:
        """Continue from the newest checkpoint, with the samples behind those taken since."""
        begun = self._outcome.step
        self._checkpoints.finish()
        found = self._checkpoints.newest(self._contents)
        if found is None:
            raise error
        step = int(found.facts["step"])
        # Those of the facts are of when it was written: this run may have gone back since.
        self._rewinds.go_back(begun=begun, to=step)
        if self._processes.is_first:
            say(
                f"{error.message} Going back to {found.path.name}, and on with the samples behind"
                f" those of step {begun} ({self._rewinds.done} of {MOST_REWINDS} times)"
            )
        self._outcome.step = step
        self._numbers.forget()
        self._control = self._new_control()
        self._parts = PartTimes(self._processes.device)
        self._feed.open(self._place)

    def _steps(self) -> None:
        outcome, job = self._outcome, self._job
        first = outcome.step
        while outcome.step < job.steps and not self._evaluation.ends_run:
            self._profiler.begin(outcome.step + 1)
            self._parts.begin()
            self._begun_step = outcome.step + 1
            made = self._feed.step(self._parts.mark)
            if made is None:
                self._end_of_data(first)
                break
            before = self._one_step(made)
            outcome.step += 1
            if self._profiler.end(outcome.step):
                self._parts.mark("profile")
            self._heartbeat.beat(outcome.step)
            if before is not None:
                self._note(
                    before, outcome.step - 1, is_settled=outcome.step - 1 > first + SETTLED_STEPS
                )
                if before.stop:
                    self._stopping.pass_on(steps_left=job.steps - outcome.step)
                    break
            self._look_and_keep(before)
            self._checkpoints.name_if_done()
            if (outcome.step - first) % SLOW_RANK_EVERY == 0:
                name_slow_ranks(self._processes, self._parts.of_step())
        self._close(first)

    def _look_and_keep(self, before: Agreed | None) -> None:
        """Sample, evaluate and save, what of it is due after a step."""
        step = self._outcome.step
        if self._sampling.is_due(step):
            self._write_samples()
        is_best = self._evaluation.is_due(step) and self._evaluate()
        if is_best or (
            before is not None
            and self._checkpoints.is_due(step, elapsed_s=before.elapsed_s, write_s=before.write_s)
        ):
            self._save()

    def _close(self, first: int) -> None:
        """Report the last step, and save it if it is not yet."""
        outcome, job = self._outcome, self._job
        self._profiler.close(outcome.step)
        ended = self._evaluation.ends_run or outcome.data_ended
        outcome.stopped = outcome.step < job.steps and not ended
        if outcome.step > first:
            if not outcome.data_ended:  # Then the parts of the next step have begun already.
                self._parts.begin()
            self._note(self._last(), outcome.step, is_settled=outcome.step > first + SETTLED_STEPS)
            if not self._checkpoints.has(outcome.step):
                self._save()
        self._checkpoints.finish()
        self._processes.barrier()

    def _write_samples(self) -> None:
        self._sampling.run(self._outcome.step)
        self._heartbeat.beat(self._outcome.step)
        self._parts.mark("samples")

    def _evaluate(self) -> bool:
        """Evaluate; return whether it is the best so far, whose checkpoint is kept."""
        step = self._outcome.step
        is_best = self._evaluation.run(step, lambda: self._heartbeat.beat(step))
        self._checkpoints.keep_best(self._evaluation.best_step)
        if self._numbers.report is not None:
            self._numbers.report.evaluation(step, self._evaluation.found)
        self._parts.mark("evaluation")
        return is_best

    def _end_of_data(self, first: int) -> None:
        """Say that there is no next step; evaluate and sample as after the last one.

        Raises:
            UserFileError: there was no step at all.
        """
        step = self._outcome.step
        self._feed.say_ended(step)
        self._outcome.data_ended = True
        if step > first and self._sampling.is_left(step):
            self._write_samples()
        if step > first and self._evaluation.is_left(step):
            self._evaluate()

    def _one_step(self, made: list[Batch]) -> Agreed | None:
        """Run a step; return what all processes agreed on after the one before."""
        trainer = self._trainer
        seed_everything(self._seed())
        self._trained.check()
        self._batch_numbers.begin(self._place, self._feed.epoch_steps)
        loss, norm = trainer.step(made, self._parts.mark)
        rate = trainer.optimizer.param_groups[0].get("lr")
        self._numbers.keep(self._feed.waited_s, norm, rate)
        scaler = trainer.scaler
        self._schedule.after_step(
            self._outcome.step + 1, skipped=scaler is not None and scaler.skipped_step
        )
        if self._own is not None:
            self._own.after_step(self._outcome.step + 1)
        return self._control.exchange(
            loss,
            stop=self._stopping.is_asked(),
            elapsed_s=self._elapsed_s(),
            write_s=self._checkpoints.write_s,
        )

    def _report_finished_step(self) -> None:
        """After a failure: report the step before it, which no later step does any more.

        Its checkpoint may be whole, and a run that goes on from there never runs it again.
        """
        with suppress(Exception):  # What ended the run is told, not what follows from it.
            agreed = self._control.arrived()
            if agreed is not None and self._numbers:
                if self._begun_step == self._outcome.step:
                    self._parts.begin()
                self._report_step(agreed, self._outcome.step, is_settled=False)

    def _note(self, agreed: Agreed, step: int, *, is_settled: bool) -> None:
        """Report a step whose numbers have arrived.

        Raises:
            LossNotFiniteError: on every process in the same step.
        """
        self._report_step(agreed, step, is_settled=is_settled)
        if not math.isfinite(agreed.loss):
            raise loss_not_finite(step, agreed.loss, self._checkpoints.newest_step)

    def _report_step(self, agreed: Agreed, step: int, *, is_settled: bool) -> None:
        parts_s = self._parts.of_step()
        self._numbers.tell(agreed, step, parts_s, before_s=self._before_s, is_settled=is_settled)

    def _save(self) -> None:
        """Begin a checkpoint, once this step is known to have a finite loss and finite weights.

        Raises:
            WeightsNotFiniteError: on every process in the same step; nothing is written.
        """
        agreed = self._last()
        step = self._outcome.step
        if math.isfinite(agreed.loss):
            if not all_finite(self._trainer.step.parameters, self._processes.device):
                raise weights_not_finite(step, agreed.loss, self._checkpoints.newest_step)
            self._trainer.buffers.take_first()
            self._checkpoints.save(
                self._contents,
                facts=self._facts(step),
                elapsed_s=agreed.elapsed_s,
            )
        self._parts.mark("checkpoint")

    def _open_contents(self) -> Contents:
        small: dict[str, SmallState] = {
            "schedule": self._schedule,
            "readings": self._feed,
            "evaluation": self._evaluation,
        }
        trainer = self._trainer
        return Contents(
            model=trainer.model,
            optimizer=trainer.optimizer,
            scaler=trainer.scaler,
            small=small if self._own is None else {**small, "own": self._own},
            own=self._own,
        )

    def _open_schedule(self) -> Schedule:
        job, workload = self._job, self._workload
        own = workload.build_scheduler is not None
        words = job.training.warm_up_words(job.steps)
        if words is not None and self._processes.is_first:
            say(f"warning: {words}")
        return open_schedule(
            workload,
            self._trainer.optimizer,
            job.training,
            steps=job.steps,
            steps_per_epoch=self._feed.steps_per_epoch() if own else None,
        )

    def _new_control(self) -> Control:
        processes = self._processes
        return Control(processes.device, world=processes.world, is_first=processes.is_first)

    def _last(self) -> Agreed:
        agreed = self._control.read()
        assert agreed is not None
        return agreed

    def _seed(self) -> int:
        """Return the seed of a step: other random numbers on every data rank and in every stage."""
        position, data = self._trainer.position, self._trainer.execution.layout.data
        own = position.stage * data + position.data
        return (self._job.seed * 1_000_003 + self._place) * 65_537 + own

    @property
    def _place(self) -> int:
        """Return which step's samples and random numbers the next step takes."""
        return self._outcome.step + self._rewinds.left_out_steps

    def _resume(self) -> int:
        """Return the step to begin with, after reading the checkpoint it follows."""
        trainer = self._trainer
        found = self._checkpoints.resume(self._contents)
        if found is None:
            return 0
        path, facts = found.path, found.facts
        self._before_s = float(facts["elapsed_s"])
        self._checkpoints.keep_best(self._evaluation.best_step)
        self._rewinds = Rewinds.of(facts)
        if self._processes.is_first:
            say(f"continuing from {path.name} ({path.parent})")
            if facts.get("global_batch") != trainer.execution.global_batch:
                say(
                    f"its global batch was {facts.get('global_batch')}, now it is"
                    f" {trainer.execution.global_batch}: samples come in another order"
                )
        return int(facts["step"])

    def _facts(self, step: int) -> dict[str, Any]:
        return saved_facts(
            step=step,
            scaler=self._trainer.scaler,
            job={
                **job_facts(self._job, self._workload, self._trainer, self._processes.world),
                "elapsed_s": self._before_s + self._elapsed_s(),
                **self._rewinds.facts(),
            },
            now=time.time,
        )

    def _elapsed_s(self) -> float:
        return time.perf_counter() - self._began_s
