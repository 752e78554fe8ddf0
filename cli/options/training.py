"""The options of training that `run` and `launch` share, and the values that they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import click

from ...catalog.errors import UsageError
from .shared import Count, F, OneOf, option
from .values.step_range import StepRange

if TYPE_CHECKING:
    from ...launcher.runner.training_options import TrainingOptions

STOP = "stop"
ON_NAN = (STOP, "rewind")
SCHEDULES = ("constant", "linear", "cosine")
TRACKERS = ("wandb", "mlflow")
OPTIONS = (
    option(
        "Training",
        "--schedule",
        type=OneOf(SCHEDULES),
        help="How the learning rate of the optimizer goes on after the warm-up: falls to 0 at the"
        " last step, or stays; default: the file's build_scheduler(), else constant.",
    ),
    option(
        "Training",
        "--warmup",
        type=Count(whole=True),
        metavar="STEPS",
        help="Steps in which the learning rate rises to the optimizer's own.",
    ),
    option(
        "Training",
        "--eval-every",
        type=Count(whole=True),
        metavar="STEPS",
        help="Evaluate on build_eval_dataset() after every so many steps and at the end; the"
        " checkpoint of the lowest loss is kept.",
    ),
    option(
        "Training",
        "--sample-every",
        type=Count(whole=True),
        metavar="STEPS",
        help="Call sample() of the file after every so many steps and at the end; what it writes is"
        " in samples of the folder of results.",
    ),
    option(
        "Training",
        "--patience",
        type=Count(whole=True),
        metavar="EVALUATIONS",
        help="End the run after so many evaluations without a lower loss.",
    ),
    option(
        "Training",
        "--on-nan",
        type=OneOf(ON_NAN),
        default=STOP,
        show_default=True,
        help="When the loss or a weight is no finite number: end the run, or go back to the newest"
        " checkpoint and leave out the samples since, at most twice.",
    ),
    option(
        "Training",
        "--weights",
        type=click.Path(),
        metavar="PATH",
        help="Start from these weights: a .safetensors file, or the folder of a Hugging Face model."
        " A run that continues from a checkpoint does not read them.",
    ),
    option(
        "Training",
        "--allow-missing",
        multiple=True,
        metavar="NAME",
        help="With --weights: a name of the model that they may lack, such as 'score.*'; it begins"
        " anew; repeatable.",
    ),
    option(
        "Training",
        "--allow-unexpected",
        multiple=True,
        metavar="NAME",
        help="With --weights: a name in them that the model may lack, such as 'lm_head.*';"
        " repeatable.",
    ),
    option(
        "Training",
        "--profile-steps",
        type=StepRange(),
        metavar="FIRST:LAST",
        help="Watch these steps with torch's profiler, as 10:12: a trace in the folder of results,"
        " and its kernels beside the plan in `gpuplan actuals`.",
    ),
    option(
        "Training",
        "--tracker",
        type=OneOf(TRACKERS),
        multiple=True,
        help="Hand the numbers of every step and evaluation to W&B (offline unless WANDB_MODE is"
        " set) or MLflow (mlflow.db in the folder of results unless MLFLOW_TRACKING_URI is set);"
        " repeatable.",
    ),
)


def training_options(command: F) -> F:
    """Give a command the options of training."""
    decorate: Callable[[F], F]
    for decorate in reversed(OPTIONS):
        command = decorate(command)
    return command


@dataclass(frozen=True, kw_only=True)
class TrainingValues:
    """What the options of training hold."""

    schedule: str | None
    warmup: int | None
    """Steps."""
    eval_every: int | None
    """Steps."""
    sample_every: int | None
    """Steps."""
    patience: int | None
    """Evaluations."""
    on_nan: str
    weights: str | None
    allow_missing: tuple[str, ...]
    allow_unexpected: tuple[str, ...]
    tracker: tuple[str, ...]
    profile_steps: tuple[int, int] | None

    def training(self) -> TrainingOptions:
        """Return them as the runner takes them.

        Raises:
            UsageError: one asks for what another does not.
        """
        from ...launcher.runner.training_options import TrainingOptions

        if self.patience is not None and self.eval_every is None:
            raise UsageError(
                "--patience counts evaluations, and none is asked for.",
                fix="add --eval-every STEPS, or leave --patience out.",
            )
        names = {"--allow-missing": self.allow_missing, "--allow-unexpected": self.allow_unexpected}
        given = [option for option, patterns in names.items() if patterns]
        if given and self.weights is None:
            raise UsageError(
                f"{given[0]} is given without --weights.",
                fix="add --weights; for those that the model file names, return the names from"
                " pretrained_weights() (docs/model-file.md).",
            )
        return TrainingOptions(
            on_nan=self.on_nan,
            schedule=self.schedule,
            warmup_steps=self.warmup or 0,
            eval_every_steps=self.eval_every,
            sample_every_steps=self.sample_every,
            patience=self.patience,
            weights=self.weights,
            allow_missing=self.allow_missing,
            allow_unexpected=self.allow_unexpected,
            tracker=tuple(dict.fromkeys(self.tracker)),
            profile_steps=self.profile_steps,
        )


NAMES = tuple(one.name for one in fields(TrainingValues))
"""Of the parameters of a command; they do not apply to a script of your own."""


def refuse_beside_script(asked: TrainingValues) -> None:
    """Refuse options of training beside a script of the user's own.

    Raises:
        UsageError: one is given.
    """
    from ...launcher.runner.training_options import TrainingOptions

    if asked.training() == TrainingOptions():
        return
    flags = ", ".join("--" + name.replace("_", "-") for name in NAMES)
    raise UsageError(
        f"{flags} apply to a model file only; your own script does not get them.",
        fix="leave them out, or put them among the words of --command.",
    )
