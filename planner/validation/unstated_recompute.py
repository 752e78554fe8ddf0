"""What a published run recomputed, where its source does not say.

A published time is that of a run that ran: where a step that recomputes nothing would not fit on
its devices, it recomputed something. In torch that is every block. Megatron's recipes choose a few
modules that cost next to no time (`--recompute-modules`), so that there the time is left as it is
without any, and only the verdict counts on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..plan.setup import Setup


def recompute_to_fit(setup: Setup, fits: Callable[[Setup], bool]) -> Setup | None:
    """Return the setup with every block recomputed where only that fits; None elsewhere.

    Args:
        setup: as its source states it, which says nothing of recompute.
        fits: whether the devices of the run hold the step of a setup.
    """
    if setup.recompute != "none" or fits(setup):
        return None
    every = replace(setup, recompute="full")
    return every if fits(every) else None
