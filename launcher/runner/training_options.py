"""How a model is trained beside its plan: what a user may ask of `run` and `launch` alike."""

from __future__ import annotations

from dataclasses import dataclass

from ...catalog.errors import UsageError

STOP, REWIND = "stop", "rewind"
ON_NAN = (STOP, REWIND)
CONSTANT, LINEAR, COSINE = "constant", "linear", "cosine"
SCHEDULES = (CONSTANT, LINEAR, COSINE)
WANDB, MLFLOW = "wandb", "mlflow"
TRACKERS: dict[str, tuple[str, ...]] = {WANDB: (WANDB,), MLFLOW: (MLFLOW, "sqlalchemy", "alembic")}
"""Trackers beside TensorBoard, and the modules that each needs."""


def samples_of_stages() -> UsageError:
    """Return the refusal of samples of a model that no process holds whole."""
    return UsageError(
        "sample() is not run under pipeline stages.",
        fix="choose a plan without them, or leave --sample-every out.",
    )


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """What is asked of training, the same here and on rented machines."""

    on_nan: str = STOP
    """`rewind` goes back to the newest checkpoint when the loss or a weight is no finite number,
    and leaves out the samples since; `stop` ends the run."""
    schedule: str | None = None
    """How the learning rate falls to 0 after the warm-up; None leaves it to the file."""
    warmup_steps: int = 0
    """In which it rises to the optimizer's own."""
    eval_every_steps: int | None = None
    """How often to evaluate on the file's `build_eval_dataset()`; None for never."""
    sample_every_steps: int | None = None
    """How often to call the file's `sample()`; None for never."""
    patience: int | None = None
    """Evaluations without a lower loss after which the run ends; None for any number."""
    weights: str | None = None
    """A safetensors file, or a folder of them, that a run which begins anew starts from."""
    allow_missing: tuple[str, ...] = ()
    """Names of the model that the weights may lack; `*` stands for any part of a name."""
    allow_unexpected: tuple[str, ...] = ()
    """Names in the weights that the model may lack."""
    tracker: tuple[str, ...] = ()
    """Of `TRACKERS`, that get the numbers of every step and evaluation."""
    profile_steps: tuple[int, int] | None = None
    """First and last step that torch's profiler watches, from 1."""

    def refuse_samples_of_stages(self, pipeline: int) -> None:
        """Refuse samples of a model that no process holds.

        Args:
            pipeline: stages of the plan.

        Raises:
            UsageError: they are asked for, and there are several stages.
        """
        if self.sample_every_steps is not None and pipeline > 1:
            raise samples_of_stages()

    def refuse_beyond(self, steps: int) -> None:
        """Refuse what a run of so many steps never comes to.

        Raises:
            UsageError: the steps to be profiled are behind its last one.
        """
        asked = self.profile_steps
        if asked is not None and asked[0] > steps:
            raise UsageError(
                f"--profile-steps {asked[0]}:{asked[1]} begins after the last of {steps:,} steps.",
                fix="profile earlier steps, behind the first three, or give more --steps.",
            )

    def warm_up_words(self, steps: int) -> str | None:
        """Return what becomes of a warm-up that a run of so many steps does not end, in words."""
        if self.warmup_steps <= steps:
            return None
        return (
            f"the warm-up of {self.warmup_steps:,} steps is longer than the run: after its"
            f" {steps:,} steps the learning rate is {steps / self.warmup_steps:.2g} of the"
            " optimizer's own"
        )
