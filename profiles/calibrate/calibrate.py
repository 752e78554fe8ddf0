"""`gpuplan calibrate`: measure the kernels of a device and write its curve file.

A child process measures (it alone imports torch), the points of most worth first, until the budget
is spent; this side keeps what it says, so that a crash or Ctrl-C costs only the running kernel.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...catalog.embedded import Catalogue
from ...catalog.errors import GpuplanError, UsageError
from ...catalog.files import write_chosen
from ...catalog.names import resolve_accelerator
from ...catalog.snapshot import load_catalogue
from ...catalog.types import Accelerator, Dtype
from ...catalog.version import VERSION
from ..curves.user_curves import curves_dir
from .child import MeasuringChild
from .driver import summary_of_load
from .fit import NOISY, Measured, fastest_s, fitted_record, is_usable, noise_of
from .schedule import Point, Scope, default_dtypes, measuring_plan

KERNEL_WITHIN_S = 120.0
"""A kernel that has not ended by then hangs."""
_RESTARTS = 5
_METHOD = (
    "median of repeats on the device's clock, L2 flushed before each, without the host's launch"
)
_HOST_METHOD = "median of repeats on the host's clock, operands rotated"
_TOO_FAST = 0.98
"""Share of the datasheet's least time below which a result is a mistake; clocks are read to 1 %."""
Progress = Callable[[int, int, str], None]
"""Is told how many points are done, of how many, and what comes next."""


@dataclass(frozen=True, kw_only=True)
class CalibrationRequest:
    """What to measure, and for how long."""

    device: str = "cuda"
    name: str | None = None
    """Accelerator of the catalogue; None: by the device's own name."""
    dtypes: tuple[Dtype, ...] = ()
    """Empty: those that the device has."""
    budget_s: float = 600.0
    quick: bool = False
    """Only coarse grids."""
    ranks: int | None = None
    """Largest number of devices in a collective; None: all that are visible (CPU: none)."""
    offers: Path | None = None
    command: str = "gpuplan calibrate"
    out: Path | None = None
    """Where to write; None: where it is found by itself."""


@dataclass
class Run:
    """What came of measuring."""

    results: list[Measured] = field(default_factory=list)
    skipped: list[tuple[Point, str]] = field(default_factory=list)
    rejected: list[Measured] = field(default_factory=list)
    load: list[dict[str, Any]] = field(default_factory=list)
    planned: int = 0
    ended: str = "complete"
    """Or "budget", "interrupted", "crashed"."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The file that was written, and how the measurement went."""

    path: Path
    accelerator: Accelerator
    record: dict[str, Any]
    run: Run


def calibrate(
    request: CalibrationRequest,
    *,
    progress: Progress = lambda _done, _total, _what: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Calibration:
    """Return the calibration of this machine's device, its curve file written.

    Raises:
        UsageError: There is no such device, or its name is not in the catalogue.
        GpuplanError: Too little was measured for a file; none is written.
        KeyboardInterrupt: Ctrl-C came before there was enough for a file.
    """
    catalogue = load_catalogue(request.offers)
    accelerator = None
    if request.name is not None or request.device == "cpu":
        accelerator = named_accelerator(request.name, catalogue)
    child = MeasuringChild(request.device)
    try:
        facts = child.facts()
    except BaseException:
        child.kill()
        raise
    try:
        accelerator = accelerator or named_accelerator(facts["name"], catalogue, of_device=True)
        scope = _scope(request, accelerator, facts)
    except BaseException:
        child.kill()
        raise
    run = _measure(child, measuring_plan(scope), accelerator, request, progress)
    date = now().date().isoformat()
    record = fitted_record(accelerator, scope.scale, run.results, version=date)
    if not is_usable(record):
        if run.ended == "interrupted":
            raise KeyboardInterrupt
        raise GpuplanError(
            f"Only {len(run.results)} kernels were measured ({_why(run)}), too few for a curve"
            " file; nothing was written.",
            fix="give it more time with --budget, and close other programs on the device.",
        )
    record["measurement"] = _measurement(request, facts, run, date)
    record["sources"] = [_source(request, facts, date), *_noise_told(record["measurement"])]
    path = request.out or curves_dir() / f"{accelerator.name}.json"
    if run.ended == "interrupted" and path.exists():
        # What was measured in full before is worth more than a part of it.
        path = path.with_name(f"{path.name}.interrupted")
    write_record(record, path)
    return Calibration(path=path, accelerator=accelerator, record=record, run=run)


def named_accelerator(
    name: str | None, catalogue: Catalogue, *, of_device: bool = False
) -> Accelerator:
    """Return the accelerator of the catalogue, or of the --offers file, that a name means.

    Raises:
        UsageError: There is none; says how to add one.
    """
    add = "or describe it under `accelerators:` in a file for --offers (docs/catalogue.md)."
    if name is None:
        raise UsageError(
            "The name of this machine's processor is not one of the catalogue.",
            fix=f"say what to call it: --name NAME, of `gpuplan gpus`, {add}",
        )
    try:
        # Host processors are in the catalogue too, but no spelling is taken for one.
        known = name in catalogue.accelerators
        canonical = name if known else resolve_accelerator(name, catalogue=catalogue)
    except UsageError as error:
        fix = f"give the name of the catalogue with --name (`gpuplan gpus` lists them), {add}"
        told = f"The device calls itself {name!r}. " if of_device else ""
        raise UsageError(f"{told}{error.message}", fix=fix) from None
    accelerator = catalogue.accelerators.get(canonical)
    if accelerator is None or not accelerator.peak_flops:
        raise UsageError(
            f"No peaks of {canonical} are known, so nothing can be told from its kernels.",
            fix="describe it under `accelerators:` in a file for --offers (docs/catalogue.md).",
        )
    return accelerator


def write_record(record: dict[str, Any], path: Path) -> None:
    """Write a curve file, whole or not at all.

    Raises:
        UsageError: It cannot be written there.
    """
    # One line per part: what was measured again shows up as a short diff.
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False).replace('},"', '},\n"')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_chosen(path, text + "\n")
    except OSError as error:
        raise UsageError(
            f"Cannot write {path}: {error.strerror or error}.",
            fix="give --out a path in a folder you may write to.",
        ) from error


def _scope(request: CalibrationRequest, accelerator: Accelerator, facts: dict[str, Any]) -> Scope:
    unknown = [dtype for dtype in request.dtypes if dtype not in accelerator.peak_flops]
    if unknown:
        known = ", ".join(accelerator.peak_flops)
        raise UsageError(
            f"{accelerator.name} has no peak for {', '.join(unknown)}.",
            fix=f"choose --dtype from those it has: {known}.",
        )
    most = request.ranks or (facts["devices"] if request.device == "cuda" else 1)
    if request.device == "cuda" and most > facts["devices"]:
        raise UsageError(
            f"--ranks is {most}, but {facts['devices']} devices are visible.",
            fix=f"give at most --ranks {facts['devices']}.",
        )
    ranks = sorted({r for r in (2, 4, 8, 16, most) if 2 <= r <= most})
    return Scope(
        accelerator=accelerator,
        scale="gpu" if request.device == "cuda" else "cpu",
        dtypes=request.dtypes or default_dtypes(accelerator),
        memory_bytes=facts["free_bytes"],
        ranks=tuple(ranks),
        levels=2 if request.quick else 3,
    )


def _measure(
    child: MeasuringChild,
    points: Sequence[Point],
    accelerator: Accelerator,
    request: CalibrationRequest,
    progress: Progress,
) -> Run:
    """Return what was measured when all is done, the budget is spent, or Ctrl-C was pressed."""
    run = Run(planned=len(points))
    deadline_s = time.monotonic() + request.budget_s
    first, restarts = 0, 0
    try:
        while True:
            child.send(points[first:])
            first, ended = _collect(child, points, first, accelerator, run, deadline_s, progress)
            if ended != "crashed":
                run.ended = ended
                return run
            child.kill()
            restarts += 1
            if restarts > _RESTARTS or first >= len(points):
                run.ended = ended
                return run
            child = MeasuringChild(request.device)
            try:
                child.facts()
            except (GpuplanError, TimeoutError):
                run.ended = "crashed"
                return run
    except KeyboardInterrupt:
        run.ended = "interrupted"
        return run
    finally:
        # A second Ctrl-C must not lose what the first one kept.
        with suppress(KeyboardInterrupt):
            child.kill()


def _collect(
    child: MeasuringChild,
    points: Sequence[Point],
    first: int,
    accelerator: Accelerator,
    run: Run,
    deadline_s: float,
    progress: Progress,
) -> tuple[int, str]:
    """Keep what the child says; return the point to go on with, and how it ended."""
    current = first
    while True:
        left_s = deadline_s - time.monotonic()
        try:
            said = child.next(min(left_s, KERNEL_WITHIN_S))
        except TimeoutError:
            if left_s <= KERNEL_WITHIN_S:
                return current, "budget"
            run.skipped.append((points[current], f"no end within {KERNEL_WITHIN_S:.0f} s"))
            return current + 1, "crashed"
        if said is None:
            run.skipped.append((points[current], "ended the measuring process"))
            return current + 1, "crashed"
        if "done" in said:
            return len(points), "complete"
        if "begin" in said:
            current = first + said["begin"]
            progress(current, len(points), points[current].what)
        elif "load" in said:
            run.load.append(said["load"])
        elif "skipped" in said:
            run.skipped.append((points[first + said["index"]], said["skipped"]))
        elif "time_s" in said:
            point = points[first + said["index"]]
            result = Measured(point, said["time_s"], said["spread"])
            too_fast = result.time_s < _TOO_FAST * fastest_s(point, accelerator)
            (run.rejected if too_fast else run.results).append(result)


def _why(run: Run) -> str:
    reasons = Counter(reason for _, reason in run.skipped)
    if run.rejected:
        reasons["faster than the peak"] = len(run.rejected)
    told = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common(3))
    return "; ".join(part for part in (run.ended, told) if part)


def _source(request: CalibrationRequest, facts: dict[str, Any], date: str) -> str:
    driver = f", driver {facts['driver']}" if facts.get("driver") else ""
    cuda = f", CUDA {facts['cuda']}" if facts.get("cuda") else ""
    return (
        f"measured with `{request.command}` (gpuplan {VERSION}) on {date}:"
        f" {facts['name']}{driver}, torch {facts['torch']}{cuda}"
    )


def _noise_told(measurement: Mapping[str, Any]) -> list[str]:
    """Return what is to be read wherever the curves are named, if something else was running."""
    noisy = measurement["noisy"]
    told = f"beside other programs: repeats differed by {NOISY * 100:.0f} % and more"
    return [f"{told} ({', '.join(noisy)})"] if noisy else []


def _measurement(
    request: CalibrationRequest, facts: dict[str, Any], run: Run, date: str
) -> dict[str, Any]:
    """Return how it was measured: the key `measurement` of the file, for people."""
    by_part: dict[str, list[Measured]] = {}
    for result in run.results:
        by_part.setdefault(f"{result.point.part} {result.point.dtype}", []).append(result)
    noise = {part: round(noise_of(results), 4) for part, results in by_part.items()}
    return {
        "date": date,
        "command": request.command,
        "gpuplan": VERSION,
        "method": _METHOD if request.device == "cuda" else _HOST_METHOD,
        "device": facts,
        "load": summary_of_load(run.load),
        "ended": run.ended,
        "points": {"planned": run.planned, "measured": len(run.results)},
        "noise": noise,
        "noisy": [part for part, spread in noise.items() if spread >= NOISY],
        "skipped": dict(Counter(f"{p.part} {p.dtype}: {why}" for p, why in run.skipped)),
        "rejected": [
            {"kernel": r.point.what, "time_us": r.time_s * 1e6, "why": "above the dense peak"}
            for r in run.rejected
        ],
    }
