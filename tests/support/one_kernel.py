"""A step of one kernel, for tests of its time alone."""

from no_storages import no_storages

from gpuplan.profiles.profile import Kernel, Numerics, Phase, Segment, StepTrace


def step_of(kernel: Kernel, *, numerics: Numerics = "amp16", phase: Phase = "forward") -> StepTrace:
    """Return a step that runs this kernel and stores nothing."""
    return StepTrace(
        numerics=numerics,
        recompute="none",
        segments=(Segment(name="step", phase=phase, block=None, kernels=(kernel,)),),
        schedule=[0],
        start_tick=[0],
        memory=no_storages(),
    )
