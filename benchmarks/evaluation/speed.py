"""How long `gpuplan validate` takes on 1,000 records, from an empty cache and from a full one."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

ROWS = 1000
KEPT = Path(__file__).with_name("speed.json")
GPUPLAN = Path(sys.executable).parent / "gpuplan"


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Seconds on the wall, and of all processors together, for one command."""

    rows: int
    cores: int
    load: float
    """Load average at the end: above `cores`, others used the machine as well."""
    date: str
    cold_s: float
    cold_cpu_s: float
    warm_s: float
    warm_cpu_s: float


def measure_speed(paths: Sequence[Path]) -> Speed:
    """Return the times of two runs on `ROWS` records, evenly drawn; keeps them in `KEPT`."""
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    drawn = [lines[index * len(lines) // ROWS] for index in range(ROWS)]
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs.jsonl"
        runs.write_text("\n".join(drawn) + "\n", encoding="utf-8")
        home = {**os.environ, "GPUPLAN_HOME": str(Path(folder) / "home")}
        (cold_s, cold_cpu_s), (warm_s, warm_cpu_s) = (_timed(runs, home) for _ in range(2))
    speed = Speed(
        rows=ROWS,
        cores=len(os.sched_getaffinity(0)),
        load=round(os.getloadavg()[1], 1),
        date=date.today().isoformat(),
        cold_s=cold_s,
        cold_cpu_s=cold_cpu_s,
        warm_s=warm_s,
        warm_cpu_s=warm_cpu_s,
    )
    KEPT.write_text(json.dumps(asdict(speed), indent=1) + "\n", encoding="utf-8")
    return speed


def kept_speed() -> Speed | None:
    """Return what was measured last, or None."""
    return Speed(**json.loads(KEPT.read_text(encoding="utf-8"))) if KEPT.exists() else None


def _timed(runs: Path, environment: dict[str, str]) -> tuple[float, float]:
    before, started_s = _processor_s(), time.perf_counter()
    subprocess.run(
        [GPUPLAN, "validate", runs, "--format", "json", "--quiet"],
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return round(time.perf_counter() - started_s, 1), round(_processor_s() - before, 1)


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
