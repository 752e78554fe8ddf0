"""Measure real training steps of a model on this machine: the parent's side, without torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ...catalog.errors import GpuplanError, UsageError
from ...catalog.vocabulary import Recompute
from ..measured import DeviceKind, MeasuredProfile, Measurement
from ..profile import Numerics, Profile
from ..tracing_process.child import Child
from ..tracing_process.service import begin_profile
from ..user_model.spec import ModelSpec

DEFAULT_STEPS = 20
ALL_NUMERICS: tuple[Numerics, ...] = ("amp16", "fp32", "pure16")
"""Traced beside a measurement, so that `estimate` may choose any precision elsewhere."""
Progress = Callable[[str, int | None, int | None], None]
"""Is told what is being done, how far it is, and of how much; None where it is not known."""


@dataclass(frozen=True, kw_only=True)
class MeasureRequest:
    """What to run."""

    device: DeviceKind | None = None
    """Device to measure on; None is CUDA where there is a device, else the processor."""
    precision: str | None = None
    """Precision of the step; None is the file's own, else fp32."""
    micro_batch: int | None = None
    """Samples of the micro-batch; None is the size of the file's make_batch, else 1."""
    steps: int = DEFAULT_STEPS
    recompute: Recompute = "none"
    largest_micro_batch: bool = False


def measure(
    spec: ModelSpec,
    request: MeasureRequest,
    *,
    use_cache: bool = True,
    on_progress: Progress | None = None,
    on_output: Callable[[str], None] | None = None,
) -> MeasuredProfile:
    """Return the Profile of a model with what real steps of it took on this machine.

    Args:
        spec: The model, its params and its time limit, which holds for each thing that is done.
        request: What to run.
        use_cache: Whether the trace may come from the cache. Nothing measured ever does.
        on_progress: Is told what is being done.
        on_output: Called with what the user's code printed (and the traceback of a failure).

    Raises:
        UserFileError: the file failed, took too long, or a step of it did not fit in memory.
        UsageError: what is asked for cannot be run here.
    """
    if spec.kind == "profile":
        raise UsageError(
            f"{spec.text} is a finished profile; only a model file can be run.",
            fix="give the model file itself.",
        )
    if request.precision == "fp8":
        raise UsageError(
            "fp8 is predicted, but not measured: plain torch does not train in it.",
            fix="measure with --precision bf16-amp.",
        )
    on_progress = on_progress or _ignored
    on_progress("tracing", None, None)
    profile = begin_profile(
        spec,
        numerics=ALL_NUMERICS,
        # A step that fails in 16 bits is planned in others, and may well be measured.
        dispensable=("amp16", "pure16"),
        use_cache=use_cache,
        on_output=on_output,
    ).result()
    filled = asdict(request) | {
        "precision": _precision(request.precision, profile),
        "micro_batch": request.micro_batch or profile.default_micro_batch or 1,
    }
    measured = _run(spec, filled, on_progress, on_output)
    return MeasuredProfile(**dict(profile), measured=measured)


def _ignored(_stage: str, _done: int | None, _total: int | None) -> None:
    """Show nothing."""


def _precision(asked: str | None, profile: Profile) -> str:
    own = profile.file_precision
    if asked is None or own is None or asked == own:
        return asked or own or "fp32"
    raise UsageError(
        f"The file sets {own} itself, so its real steps run in {own}, not in {asked}.",
        fix=f"take {own} out of the file, or leave --precision out.",
    )


def _run(
    spec: ModelSpec,
    request: dict[str, Any],
    on_progress: Progress,
    on_output: Callable[[str], None] | None,
) -> Measurement:
    child = Child(spec, main=f"{__package__}.child_main", more={"measure": request})

    def tell(news: dict[str, Any]) -> None:
        on_progress(news["stage"], news["done"], news["total"])

    try:
        answer = child.result(tell)
        return Measurement.model_validate_json(answer["profile"])
    except GpuplanError:
        if on_output is not None and child.traceback:
            on_output(child.printed() + child.traceback)
        raise
    finally:
        child.kill()
