"""What a run here takes from its request, its plan or the machine, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

from ...catalog.errors import GpuplanError, NoFeasiblePlanError, UsageError
from ...catalog.names import resolve_accelerator
from ...catalog.snapshot import Catalogue
from ...catalog.types import CPU_PREFIX
from ...planner.hardware.device import peak_flops
from ...planner.plan.plan import Plan
from ...profiles.user_model.spec import ModelSpec
from ..store.sourced_plan import SourcedPlan
from .machine import core_count, is_port_free
from .run_request import DEFAULT_STEPS, RunRequest

Note = Callable[[str], None]


def refuse_contradictions(spec: ModelSpec, given: SourcedPlan | None, request: RunRequest) -> None:
    """Refuse what contradicts itself, the plan or a taken port.

    Raises:
        UsageError: it does.
        NoFeasiblePlanError: the plan is not run by gpuplan.
    """
    if spec.kind == "profile":
        raise UsageError(
            f"{spec.text} is a written Profile: it has no code to train.",
            fix="give the model file itself.",
        )
    port = request.master_port
    if port is not None and not is_port_free(port):
        raise UsageError(
            f"Port {port} is in use on this machine.",
            fix="give another --master-port, or leave it out to take a free one.",
        )
    if given is None:
        return
    plan = given.plan
    if request.micro_batch is not None:
        raise UsageError(
            f"--micro-batch {request.micro_batch} contradicts the plan, whose micro-batch is"
            f" {plan.micro_batch}.",
            fix="leave it out, or make a plan with `gpuplan estimate --micro-batch`.",
        )
    if plan.needs_port:
        raise NoFeasiblePlanError(
            f"{plan.offer.accelerator} runs torch code only after a port; such a plan is not run.",
            fix="choose a plan on other accelerators with `gpuplan plans`.",
        )
    asked = request.nproc
    if asked is not None and asked != plan.layout.accelerators:
        raise UsageError(
            f"--nproc {asked} contradicts the plan, which is for {plan.layout.accelerators}"
            f" processes ({plan.layout}).",
            fix="leave it out, or make a plan with `gpuplan estimate --layout`.",
        )


def chosen_device(request: RunRequest, plan: Plan | None, devices: tuple[str, ...]) -> str:
    """Return cuda or cpu: as asked, else as the plan has it where there are devices.

    Raises:
        UsageError: cuda is asked for, and there is no device.
    """
    if request.device is not None:
        if request.device == "cuda" and not devices:
            raise UsageError(
                "torch sees no CUDA device here.",
                fix="run `gpuplan doctor` to see why, or give --device cpu.",
            )
        return request.device
    on_processor = plan is not None and plan.offer.accelerator.startswith(CPU_PREFIX)
    return "cuda" if devices and not on_processor else "cpu"


def process_count(request: RunRequest, plan: Plan | None, device: str, devices: int) -> int:
    """Return how many processes run: the plan's, else those asked for, else one for each device.

    Raises:
        UsageError: there are fewer devices.
    """
    planned = None if plan is None else plan.layout.accelerators
    count = planned or request.nproc or (devices if device == "cuda" else 1)
    if device == "cuda" and count > devices:
        asked = f"The plan is for {count}" if planned else f"--nproc {count} takes as many"
        here = f"{devices} device{'' if devices == 1 else 's'}"
        raise UsageError(
            f"{asked} accelerators; this machine has {here}.",
            fix=f"plan for it with `gpuplan estimate --layout dp{devices}`, or give --device cpu"
            " to rehearse the plan on the processor."
            if planned
            else f"give --nproc {devices}.",
        )
    return count


def note_stand_in(plan: Plan | None, device: str, nproc: int, on_note: Note) -> None:
    """Say what a run on processors is worth, and how crowded it will be."""
    if device != "cpu":
        return
    cores = core_count()
    if nproc > cores:
        on_note(f"{nproc} processes share {cores} cores: every step will be slow.")
    if plan is not None and not plan.offer.accelerator.startswith(CPU_PREFIX):
        on_note(
            f"Running on the processor: the plan is rehearsed, and its times say nothing of"
            f" {plan.offer.accelerator}."
        )


def chosen_steps(request: RunRequest, plan: Plan | None, on_note: Note) -> int:
    """Return the steps asked for, else the plan's, else a few; say so for the last."""
    if request.steps is not None:
        return request.steps
    if plan is not None and plan.run is not None:
        on_note(f"Taking the plan's {plan.run.steps:,} steps; --steps gives another number.")
        return plan.run.steps
    on_note(f"Taking {DEFAULT_STEPS} steps; --steps gives another number.")
    return DEFAULT_STEPS


def is_planned(plan: Plan, names: tuple[str, ...], catalogue: Catalogue) -> bool:
    """Return whether the devices here are those of the plan."""
    try:
        here = {resolve_accelerator(name, catalogue=catalogue) for name in names}
    except GpuplanError:
        return False
    return here == {plan.offer.accelerator}


def planned_peak_flops(plan: Plan, catalogue: Catalogue) -> float | None:
    """Return the dense peak of the plan's accelerator, in FLOP/s; None where it is not known."""
    accelerator = catalogue.accelerators.get(plan.offer.accelerator)
    return None if accelerator is None else peak_flops(accelerator, plan.precision)
