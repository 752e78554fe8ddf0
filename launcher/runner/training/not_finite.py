"""A loss or weights that are no finite numbers: how it is said, and how often a run goes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....catalog.errors import GpuplanError

MOST_REWINDS = 2
"""After so many in one run it ends: what diverges a third time is no bad sample."""


class NotFiniteError(GpuplanError):
    """Training diverged, on every process in the same step."""


class LossNotFiniteError(NotFiniteError):
    """The loss became infinite or no number."""


class WeightsNotFiniteError(NotFiniteError):
    """Weights became infinite or no number, while the loss was still finite."""


def loss_not_finite(step: int, loss: float, newest: int | None) -> LossNotFiniteError:
    """Return the error of a step whose loss is no finite number.

    Args:
        step: the one.
        loss: its.
        newest: step of the newest checkpoint; None where there is none.
    """
    return LossNotFiniteError(
        f"The loss of step {step} is {loss}; nothing after it can be learned.",
        fix="lower the learning rate, give --clip-grad-norm 1, or use bf16-amp or fp32;"
        f" {_kept(newest)}.",
    )


def weights_not_finite(step: int, loss: float, newest: int | None) -> WeightsNotFiniteError:
    """Return the error of weights that are no finite numbers after a step of finite loss."""
    return WeightsNotFiniteError(
        f"After step {step} weights are infinite or no number, though its loss"
        f" was {loss:.6g}: gradients were not finite. No checkpoint is made of them.",
        fix="look for a root, logarithm or quotient of 0 in the loss, lower the learning rate,"
        f" or use bf16-amp or fp32; {_kept(newest)}.",
    )


@dataclass
class Rewinds:
    """How often a run went back, and which samples it left out since."""

    done: int = 0
    left_out_steps: int = 0
    """Steps' worth of samples: those of step s are the ones that s + this would have taken."""

    @property
    def may_go_back(self) -> bool:
        """Return whether a run may go back once more."""
        return self.done < MOST_REWINDS

    def go_back(self, *, begun: int, to: int) -> None:
        """Count that a run goes back, and leaves out what it has taken since.

        Args:
            begun: steps that were begun.
            to: steps that the checkpoint has done.
        """
        self.done += 1
        self.left_out_steps += begun - to

    def facts(self) -> dict[str, int]:
        """Return what a checkpoint says of it."""
        return {"rewinds": self.done, "left_out_steps": self.left_out_steps}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Rewinds:
        """Return what a checkpoint says of it; none in one that is older."""
        return cls(int(facts.get("rewinds", 0)), int(facts.get("left_out_steps", 0)))


def _kept(newest: int | None) -> str:
    """Return which checkpoint is left, as a clause; the weights of each were checked."""
    if newest is None:
        return "there is no checkpoint from before it"
    return f"the newest checkpoint is that of step {newest}, from before it"
