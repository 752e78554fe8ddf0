"""A job so small that the processor of the person's own machine ends it no later than a cloud."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ....catalog.text.quantity import format_duration
from ....catalog.units import SECONDS_PER_HOUR
from ....profiles.profile import Profile
from ...cost.start_up import start_up_s
from ...plan.plan import Plan
from ..batch_rule import FEWEST_STEPS
from ..candidate import Candidate

FLOPS_PER_S = 20e9
"""What four cores of a laptop reach: a twentieth of their 384 GFLOP/s in fp32 (3 GHz, two 8-wide
fused multiply-adds a cycle: Intel 64 and IA-32 Architectures Optimization Reference Manual). The
twentieth is a judgement, on the safe side: eager torch reaches more in all but small products."""
BYTES_PER_S = 20e9
"""What they move: two fifths of the 51.2 GB/s of two channels of DDR4-3200 (JEDEC JESD79-4). The
two fifths are a judgement."""


def own_machine_s(plan: Plan, candidate: Candidate, profile: Profile) -> float | None:
    """Return seconds that the job takes on four cores, roughly; None without an amount of work.

    Args:
        plan: on an accelerator; what its memory moves, and the host launches, is moved and launched
            on a processor too.
        candidate: what the plan was made of.
        profile: the model.
    """
    if candidate.steps is None or candidate.limited_by is not None:
        return None
    return candidate.steps * _step_s(plan, candidate, profile)


def _step_s(plan: Plan, candidate: Candidate, profile: Profile) -> float:
    """Return seconds of one step with the plan's global batch."""
    parts = plan.breakdown_s
    bandwidth = candidate.one_node.accelerator.memory_bandwidth_bytes_per_s
    moving_s = parts.memory_bound + parts.optimizer
    if plan.bandwidth_share is not None:
        # Small kernels take longer than what they move: a processor that waits for none does not.
        moving_s = min(moving_s, plan.bandwidth_share * plan.step_time_s.value)
    moved_bytes = moving_s * bandwidth * plan.accelerators
    flops = profile.flops_per_sample * plan.global_batch
    return flops / FLOPS_PER_S + moved_bytes / BYTES_PER_S + parts.launch


def own_machine_notes(plan: Plan, candidate: Candidate, profile: Profile) -> Iterator[str]:
    """Yield that no cloud is needed, where a processor ends no later than the rented machine."""
    needed_s = own_machine_s(plan, candidate, profile)
    rented_s = 0.0 if plan.whole_job is None else plan.whole_job.hours * SECONDS_PER_HOUR
    if needed_s is None or needed_s > max(start_up_s(), rented_s):
        return
    whole = "less than a minute" if needed_s < 60 else _about(needed_s)
    rented = f"a rented machine {_about(start_up_s())} to start"
    if needed_s > start_up_s():
        rented = f"the rented machine {_about(rented_s)} with its start"
    yield (
        f"your own machine will do: four cores of a laptop take {whole} by a rough rule, {rented};"
        " `gpuplan run` trains it here"
    )


def own_machine_reach(plan: Plan, candidate: Candidate, profile: Profile) -> Iterator[str]:
    """Yield up to which amount of work no cloud is needed, where none was given.

    It is said where that is a training: as many steps as the rule for the global batch leaves.
    """
    if candidate.steps is not None:
        return
    steps = start_up_s() / _step_s(plan, candidate, profile)
    if steps >= FEWEST_STEPS:
        yield (
            "your own machine will do for up to about"
            f" {_one_digit(steps * plan.global_batch):,} samples: four cores of a"
            f" laptop train on them, by a rough rule, in the"
            f" {format_duration(start_up_s() / SECONDS_PER_HOUR)} that a rented machine takes to"
            " start; `gpuplan run` trains it here"
        )


def _one_digit(samples: float) -> int:
    """Return a number with one significant digit, rounded down."""
    size = 10 ** math.floor(math.log10(samples))
    return int(samples // size) * size


def _about(seconds: float) -> str:
    """Return a length of time with two digits: no rule of thumb knows a third."""
    size_s = 60.0 if seconds < SECONDS_PER_HOUR else SECONDS_PER_HOUR
    rounded_s = float(f"{seconds / size_s:.2g}") * size_s
    return f"about {format_duration(rounded_s / SECONDS_PER_HOUR)}"
