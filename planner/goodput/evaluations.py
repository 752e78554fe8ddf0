"""What evaluations take beside the steps of a run, from how many samples they are made on.

An evaluation runs the forward pass on every sample of its data set once, in batches of the
micro-batch on every data-parallel rank (`launcher/runner/evaluation`). A step runs it, and the
backward pass, on the global batch. So on the same machines what evaluations take is a share of the
steps that knows no device: samples over samples, times the forward pass over both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...profiles.profile import Kernel, Profile, StepTrace
from ..plan.parts import Evaluation
from ..plan.question import Work
from .priors import stated

USUAL_BATCH = 8
"""Samples at which a pass is weighed where the file names no batch of its own."""


@dataclass(frozen=True, kw_only=True)
class ForwardShare:
    """The forward pass of a micro-batch over forward and backward together."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Evaluations:
    """How often a run is evaluated, and on how much."""

    every_steps: int
    samples: int
    forward: ForwardShare

    def of(
        self,
        ranks: int,
        *,
        micro_batch: int,
        global_batch: int,
        steps: int | None,
        recomputed: float = 0.0,
    ) -> Evaluation:
        """Return what they take of the time of a run's steps.

        The optimizer's step and the traffic of gradients are counted as if an evaluation had them
        too, so that it comes out too long rather than too short.

        Args:
            ranks: data-parallel ranks, which share the samples; the last batch is full.
            micro_batch: samples of one rank's batch.
            global_batch: samples of a step.
            steps: of the run; None: not known, and the evaluation at its end is left out.
            recomputed: part of the forward pass that a step runs twice.
        """
        turns = math.ceil(self.samples / (ranks * micro_batch))
        times = turns * ranks * micro_batch / global_batch * self._each_step(steps)

        def share(forward: float) -> float:
            return times * forward / (1 + forward * recomputed)

        return Evaluation(
            every_steps=self.every_steps,
            samples=self.samples,
            share=share(self.forward.value),
            share_low=share(self.forward.low),
            share_high=share(self.forward.high),
        )

    def _each_step(self, steps: int | None) -> float:
        """Return evaluations for each step."""
        return 1 / self.every_steps if not steps else math.ceil(steps / self.every_steps) / steps


def evaluations_of(work: Work, profile: Profile) -> Evaluations | None:
    """Return the evaluations of a question; None where it does not say how many there are."""
    if work.eval_every is None or work.eval_samples is None:
        return None
    return Evaluations(
        every_steps=work.eval_every, samples=work.eval_samples, forward=forward_share(profile)
    )


def respaced(evaluation: Evaluation, every_steps: int, steps: int | None) -> Evaluation:
    """Return what evaluations take that are made after other numbers of steps."""
    if steps is None:
        times = evaluation.every_steps / every_steps
    else:
        times = math.ceil(steps / every_steps) / math.ceil(steps / evaluation.every_steps)
    return evaluation.model_copy(
        update={
            "every_steps": every_steps,
            "share": evaluation.share * times,
            "share_low": evaluation.share_low * times,
            "share_high": evaluation.share_high * times,
        }
    )


def forward_share(profile: Profile) -> ForwardShare:
    """Return what of a trace's forward and backward pass is the forward pass.

    Some kernels take time by their FLOPs and others by their bytes: the likely value lies between
    the shares of both, and the range is wider than both by the factor of the table.
    """
    samples = profile.default_micro_batch or USUAL_BATCH
    step, width = profile.steps[0], stated("evaluation", "width")
    by_flops = _share(step, lambda one: one.flops.at(samples))
    by_bytes = _share(step, lambda one: one.bytes_read.at(samples) + one.bytes_written.at(samples))
    known = [one for one in (by_flops, by_bytes) if one is not None] or [1.0]
    return ForwardShare(
        value=math.prod(known) ** (1 / len(known)),
        low=min(known) / width,
        high=min(1.0, max(known) * width),
    )


def _share(step: StepTrace, amount: Callable[[Kernel], float]) -> float | None:
    """Return the share of the forward pass; None where neither pass has any."""
    forward, backward = (
        math.fsum(amount(one) for one in _kernels(step, phase)) for phase in ("forward", "backward")
    )
    return forward / (forward + backward) if forward > 0 else None


def _kernels(step: StepTrace, phase: str) -> Iterator[Kernel]:
    for place in step.schedule:
        if step.segments[place].phase == phase:
            yield from step.segments[place].kernels
