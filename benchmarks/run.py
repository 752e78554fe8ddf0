"""Time whole gpuplan commands and print them beside their budgets:  make bench.

Every row is a fresh process, as a person starts it: seconds on the wall (the budget is for those)
and of the processor (which other work on the machine hardly changes), medians of the repeats, and
the most memory that the process and its children held together. "Cold" starts from an empty gpuplan
home; "warm" starts from the home of one run before. Exits 1 when a budget is missed.

    python benchmarks/run.py [--only WORD] [--repeats 3] [--write docs/benchmarks.md]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GPUPLAN = Path(sys.executable).parent / "gpuplan"
LLAMA_70B = "layers=80 hidden=8192 heads=64 kv_heads=8 ffn=28672 vocab=128256"
SAMPLE_EVERY_S = 0.02
MIXTURE_16B = (
    "layers=28 hidden=2048 heads=16 kv_heads=16 ffn=10944 dense_layers=1 vocab=102400"
    " experts=64 active_experts=6 shared_experts=2 moe_ffn=1408"
)
MB = 10**6


@dataclass(frozen=True, kw_only=True)
class Case:
    """One command and what it may take."""

    name: str
    args: tuple[str, ...]
    budget_s: float
    budget_bytes: int = 1000 * MB
    warm: bool = False


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one process took. `peak_bytes` is None where the system does not tell."""

    wall_s: float
    cpu_s: float
    peak_bytes: int | None


def cases() -> list[Case]:
    """Return the commands that have a budget, the quick ones first."""
    gpt2 = ("estimate", str(ROOT / "examples" / "gpt2.py"))
    decoder = ("estimate", str(ROOT / "examples" / "decoder.py"))
    params_70b, mixture = _params(LLAMA_70B), _params(MIXTURE_16B)
    return [
        Case(name="--help", args=("--help",), budget_s=0.3),
        Case(name="offers", args=("offers",), budget_s=0.5),
        Case(name="estimate GPT-2 124M, warm", args=gpt2, budget_s=1, warm=True),
        Case(name="estimate GPT-2 124M, cold", args=gpt2, budget_s=5),
        Case(name="estimate decoder 8B, warm", args=decoder, budget_s=1, warm=True),
        Case(name="estimate decoder 8B, cold", args=decoder, budget_s=8),
        Case(
            name="estimate decoder 70B, warm", args=(*decoder, *params_70b), budget_s=2, warm=True
        ),
        Case(name="estimate decoder 70B, cold", args=(*decoder, *params_70b), budget_s=15),
        Case(name="estimate mixture 16B, warm", args=(*decoder, *mixture), budget_s=2, warm=True),
        Case(name="estimate mixture 16B, cold", args=(*decoder, *mixture), budget_s=25),
    ]


def _params(words: str) -> tuple[str, ...]:
    return tuple(word for param in words.split() for word in ("--param", param))


def main() -> int:
    """Run the cases; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="only the cases whose name holds this")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each case (default 3)")
    parser.add_argument("--write", type=Path, help="also put the table into this Markdown page")
    options = parser.parse_args()
    rows, kept = [], True
    print(HEADER, flush=True)
    for case in cases():
        if options.only in case.name:
            row, within = measured(case, options.repeats)
            kept = kept and within
            rows.append(row)
            print(row, flush=True)
    if options.write is not None:
        text = options.write.read_text(encoding="utf-8")
        options.write.write_text(with_table(text, rows), encoding="utf-8")
    return 0 if kept else 1


HEADER = """\
| command | seconds | budget | processor s | peak memory | budget | |
|---|---:|---:|---:|---:|---:|---|"""


def measured(case: Case, repeats: int) -> tuple[str, bool]:
    """Return a case's row of the table and whether it kept both budgets."""
    runs = list(repeated(case, repeats))
    wall_s = statistics.median(run.wall_s for run in runs)
    peaks = [run.peak_bytes for run in runs if run.peak_bytes is not None]
    peak_bytes = max(peaks, default=None)
    within = wall_s <= case.budget_s and (peak_bytes or 0) <= case.budget_bytes
    cells = (
        case.name,
        f"{wall_s:.2f}",
        f"{case.budget_s:g}",
        f"{statistics.median(run.cpu_s for run in runs):.2f}",
        "unknown" if peak_bytes is None else f"{peak_bytes / MB:,.0f} MB",
        f"{case.budget_bytes / MB:,.0f} MB",
        "ok" if within else "**missed**",
    )
    return f"| {' | '.join(cells)} |", within


def repeated(case: Case, repeats: int) -> Iterator[Run]:
    """Yield the runs of one case, each from a home as the case wants it."""
    with tempfile.TemporaryDirectory(prefix="gpuplan-bench-") as folder:
        if case.warm:
            run(case.args, home=Path(folder))
        for index in range(repeats):
            yield run(case.args, home=Path(folder) / ("" if case.warm else str(index)))


def run(args: tuple[str, ...], *, home: Path) -> Run:
    """Run one command to its end and return what it took.

    Raises:
        SystemExit: The command failed; its time would mean nothing.
    """
    environment = {**os.environ, "GPUPLAN_HOME": str(home), "NO_COLOR": "1"}
    # Build machines set this; with it every start compiles every module anew, nobody's case.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as errors:
        began_s, before = time.perf_counter(), os.times()
        process = subprocess.Popen(
            [str(GPUPLAN), *args], env=environment, stdout=subprocess.DEVNULL, stderr=errors
        )
        peak_bytes = 0
        while True:
            peak_bytes = max(peak_bytes, tree_bytes(process.pid))
            try:
                process.wait(SAMPLE_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                continue
        wall_s, after = time.perf_counter() - began_s, os.times()
        if process.returncode != 0:
            errors.seek(0)
            sys.exit(f"gpuplan {' '.join(args)} failed:\n{errors.read().decode()}")
    spent = zip(after[2:4], before[2:4], strict=True)  # user and system time of children
    cpu_s = sum(now - then for now, then in spent)
    return Run(wall_s=wall_s, cpu_s=cpu_s, peak_bytes=peak_bytes or None)


def tree_bytes(pid: int) -> int:
    """Return the resident bytes of a process and all below it; 0 where there is no /proc.

    Pages that several processes share count once for each: never too little.
    """
    total_bytes, waiting = 0, [pid]
    while waiting:
        folder = Path("/proc") / str(waiting.pop())
        try:
            total_bytes += int((folder / "statm").read_text().split()[1]) * PAGE_BYTES
            for task in (folder / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, ValueError):
            continue  # It ended meanwhile.
    return total_bytes


PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


MARK = "<!-- whole commands -->"
"""Stands before and after the table in the page."""


def with_table(text: str, rows: list[str]) -> str:
    """Return a page with the table in place of the one between its marks, said where and when."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    measured_on = f"Measured {date.today().isoformat()} on {machine}."
    before, _, after = text.split(MARK)
    return MARK.join([before, "\n".join(["", measured_on, "", HEADER, *rows, ""]), after])


if __name__ == "__main__":
    sys.exit(main())
