"""How fast the kernels of this machine are: measured into a curve file, which can be evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...catalog.errors import UsageError

if TYPE_CHECKING:
    from ...catalog.types import Dtype
    from ...profiles.calibrate.calibrate import Calibration
    from ...profiles.calibrate.check import CurveCheck

BUDGET_S = 600.0
QUICK_BUDGET_S = 60.0


def calibrate(
    *,
    device: Literal["cuda", "cpu"] = "cuda",
    name: str | None = None,
    dtypes: Iterable[Dtype] = (),
    budget_s: float | None = None,
    quick: bool = False,
    ranks: int | None = None,
    offers: Path | None = None,
    out: Path | None = None,
    on_progress: Callable[[int, int, str], None] | None = None,
    now: Callable[[], datetime] | None = None,
) -> Calibration:
    """Return the measured kernels of this machine's device, its curve file written.

    Args:
        device: The first visible GPU, or the host itself.
        name: Of the accelerator in the catalogue; default: by the name that the driver gives.
        dtypes: Only these; default: all that the device has peaks for.
        budget_s: Longest time to measure, seconds; default: 600, or 60 if `quick`.
        quick: Whether only coarse grids are measured.
        ranks: Largest number of devices in a collective; default: all GPUs, no CPU processes.
        offers: The user's own machines, where the accelerator may be described.
        out: Where to write the curves; default: where gpuplan finds them by itself.
        on_progress: Called with the points done, of how many, and what comes next.
        now: The clock, for the date in the file; default: the current time in UTC.

    Raises:
        UsageError: There is no such device, or its name is not in the catalogue.
        GpuplanError: Too little was measured for a file; none is written.
        KeyboardInterrupt: Ctrl-C came before there was enough for a file.
    """
    from ...profiles.calibrate.calibrate import CalibrationRequest
    from ...profiles.calibrate.calibrate import calibrate as measure_kernels

    chosen = tuple(dtypes)
    request = CalibrationRequest(
        device=device,
        name=name,
        dtypes=chosen,
        budget_s=budget_s or (QUICK_BUDGET_S if quick else BUDGET_S),
        quick=quick,
        ranks=ranks,
        offers=offers,
        command=_command(device, name, chosen, budget_s, quick, ranks),
        out=out,
    )
    return measure_kernels(
        request,
        progress=on_progress or (lambda _done, _total, _what: None),
        now=now or (lambda: datetime.now(UTC)),
    )


def check_curves(file: Path, *, offers: Path | None = None) -> CurveCheck:
    """Return how good a curve file is by itself, and against the embedded curves.

    Args:
        file: What `calibrate` wrote.
        offers: The user's own machines, where its accelerator may be described.

    Raises:
        UsageError: There is no such file, or it holds no curves.
    """
    from ...profiles.calibrate.check import check_curve_file

    if not file.is_file():
        raise UsageError(f"There is no file {file}.", fix="give a file that calibrate wrote.")
    return check_curve_file(file, offers)


def _command(
    device: str,
    name: str | None,
    dtypes: tuple[str, ...],
    budget_s: float | None,
    quick: bool,
    ranks: int | None,
) -> str:
    """Return the command that measures the same again, without paths of this machine."""
    words = ["gpuplan calibrate", f"--device {device}"]
    words += [f"--name {name}"] if name else []
    words += [f"--dtype {','.join(dtypes)}"] if dtypes else []
    words += [f"--budget {budget_s:g}s"] if budget_s else []
    words += ["--quick"] if quick else []
    words += [f"--ranks {ranks}"] if ranks else []
    return " ".join(words)
