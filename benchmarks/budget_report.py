"""How long `gpuplan report` takes for a project of 60 experiments over 24 months.

    python benchmarks/budget_report.py

The experiments are ablations of four models of the examples, each with its own amount of work: 60
questions of 12 models. "cold" traces and searches all of them, "warm" is the same report again, and
"one changed" the report after one experiment got another amount of work.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
BOUND_S = 5.0
"""Of the warm report."""
MODELS = (
    ("gpt2.py", "layers", (6, 12, 18), "tokens"),
    ("vit.py", "layers", (6, 12, 24), "samples"),
    ("lstm.py", "layers", (2, 3, 4), "tokens"),
    ("bert.py", "layers", (6, 12, 24), "tokens"),
)


def project(first_amount: str = "100M") -> str:
    """Return a project file of 60 experiments."""
    lines = ["name: 60 experiments", "start: 2027-01", "months: 24", "experiments:"]
    for i in range(60):
        file, param, values, unit = MODELS[i % 4]
        value = values[i // 4 % 3]
        amount = first_amount if i == 0 else f"{100 + i}M"
        month = f"{2027 + i // 30}-{1 + i % 12:02d}"
        lines += [
            f"  e{i}:",
            f"    model: {ROOT / 'examples' / file}",
            f"    params: {{{param}: {value}}}",
            f"    {unit}: {amount}",
            f"    start: {month}",
            f"    owner: {'Ada' if i % 2 else 'Bo'}",
            "    runs: {seeds: 2}",
        ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the times; return 1 where the warm report takes longer than it may."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "gpuplan.yaml"
        file.write_text(project())
        cold = seconds(file, folder)
        warm = min(seconds(file, folder) for _ in range(3))
        html = min(seconds(file, folder, "report.html") for _ in range(2))
        size = (folder / "report.html").stat().st_size
        file.write_text(project("99M"))
        changed = seconds(file, folder)
    print(
        f"cold {cold:.1f} s, one changed {changed:.1f} s, warm {warm:.1f} s (at most {BOUND_S} s)"
    )
    print(f"warm, as HTML of {size / 1000:.0f} kB {html:.1f} s")
    return int(warm > BOUND_S)


def seconds(file: Path, folder: Path, out: str = "report.json") -> float:
    """Return how long the command takes, seconds."""
    words = [sys.executable, "-m", "gpuplan", "report", str(file), "-q", "-o", str(folder / out)]
    begin = time.perf_counter()
    subprocess.run(words, check=True, env={**os.environ, "GPUPLAN_HOME": str(folder / "home")})
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main())
