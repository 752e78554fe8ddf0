"""The options of gpuplan that ask for a plan again: its machine, and how it is used."""

from __future__ import annotations

from collections.abc import Iterator

from ..plan.plan import Plan
from .snippets import options_of
from .today.setting import Setting


def all_options(plan: Plan, today: Setting) -> str:
    """Return the options that name a plan's machine and everything that was free in it.

    Args:
        plan: what is asked for again, and nothing else.
        today: the setting that it changes.
    """
    frozen = plan.frozen_precision
    return " ".join(
        [
            options_of(plan),
            f"--precision {plan.precision} --recompute {plan.recompute_text}",
            *([f"--frozen-precision {frozen}"] if frozen else []),
            "--compile" if plan.compile else "--no-compile",
            *_kept_options(plan, today),
        ]
    )


def _kept_options(plan: Plan, today: Setting) -> Iterator[str]:
    """Yield another optimizer than the file's own, and what is kept in host memory."""
    if today.setup.optimizer is not None:
        yield f"--optimizer {today.setup.optimizer}"
    if plan.offloaded:
        yield f"--offload {','.join(plan.offloaded)}"
