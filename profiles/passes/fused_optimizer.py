"""What torch's fused Adam moves in place of the foreach one: every tensor once, in one kernel.

The foreach implementation, which CUDA takes by default, runs every term of the update as a pass of
its own over all parameters. `fused=True` reads gradient, parameter and moments once, and writes
them once (torch/optim/adam.py, _fused_adam; aten/src/ATen/native/cuda/FusedAdamKernel.cu). A test
repeats it with torch's own.
"""

from __future__ import annotations

from ..profile import CATEGORIES, Affine, Kernel, Profile, Segment, StepTrace
from .optimizer_rules import multi_tensor_launches
from .storages import storages_of, with_storages

FUSABLE = ("adam", "adamw")
"""Those of which foreach moves more than twice as much; SGD's three passes are not worth a line."""
FOREACH = "_foreach_"
"""How torch names the operators of the implementation that is replaced."""
_GRADIENTS, _TEMPORARY = CATEGORIES.index("gradients"), CATEGORIES.index("temporary")


def can_be_fused(profile: Profile) -> bool:
    """Return whether the file steps by torch's foreach Adam, with dense gradients alone."""
    if profile.optimizer.name not in FUSABLE or profile.sparse_parameters:
        return False
    kernels = [kernel for step in profile.steps for kernel in _segment(step).kernels]
    return bool(kernels) and all(kernel.op.startswith(FOREACH) for kernel in kernels)


def with_fused_optimizer(profile: Profile) -> Profile:
    """Return the Profile with `fused=True`, of one that `can_be_fused`."""
    steps = tuple(_fused(step, profile) for step in profile.steps)
    kernels = _segment(steps[0]).kernels
    moved = sum(kernel.bytes_read.base + kernel.bytes_written.base for kernel in kernels)
    facts = profile.optimizer.model_copy(
        update={
            "step_bytes_per_parameter": moved / max(1, profile.trained_parameters),
            "temporary_bytes_per_parameter": 0.0,
            "launches": sum(kernel.launches for kernel in kernels),
        }
    )
    return profile.model_copy(update={"steps": steps, "optimizer": facts})


def _number(step: StepTrace) -> int:
    """Return the place of the optimizer among the segments."""
    return next(n for n in step.schedule if step.segments[n].phase == "optimizer")


def _segment(step: StepTrace) -> Segment:
    return step.segments[_number(step)]


def _fused(step: StepTrace, profile: Profile) -> StepTrace:
    """Return a step whose optimizer is one kernel, without the temporaries of the passes."""
    number = _number(step)
    old = step.segments[number]
    start = step.start_tick[list(step.schedule).index(number)]
    rows = storages_of(step.memory)
    gradients = [row["bytes_base"] for row in rows if row["category"] == _GRADIENTS]
    kernel = _kernel(old.kernels, gradients, profile)
    new = old.model_copy(update={"kernels": (kernel,), "offsets": old.offsets[:1]})
    segments = (*step.segments[:number], new, *step.segments[number + 1 :])
    kept = [r for r in rows if r["category"] != _TEMPORARY or r["birth_tick"] < start]
    return with_storages(step.model_copy(update={"segments": segments}), kept)


def _kernel(passes: tuple[Kernel, ...], gradients: list[int], profile: Profile) -> Kernel:
    """Return the kernel that takes the place of these passes.

    The last pass writes the parameters once. The kernel reads and, as its schema says, writes
    them, their gradients and all moments; a launch before it counts the steps of every tensor.
    """
    last = passes[-1]
    written = last.bytes_written.base
    moments = round(profile.optimizer.state_bytes_per_parameter * profile.trained_parameters)
    width = max(1, round(written / max(1, profile.trained_parameters)))
    elements = [size // width for size in gradients]
    lists = 2 + max(1, round(moments / max(1.0, written)))
    launches = multi_tensor_launches(elements, lists)
    return last.model_copy(
        update={
            "op": f"_fused_{profile.optimizer.name}",
            "bytes_read": Affine(lists * written),
            "bytes_written": Affine(lists * written),
            "launches": launches + multi_tensor_launches([1] * len(elements), 1),
        }
    )
