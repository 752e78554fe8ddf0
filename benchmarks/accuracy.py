"""Judge the predictions on the open run records and write docs/accuracy.md.

Run it with `make accuracy`, or name record files of your own:
    .venv/bin/python benchmarks/accuracy.py runs.jsonl --out /tmp/accuracy.md
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from gpuplan.cli.render.validate import render_markdown
from gpuplan.launcher.validation import validate
from gpuplan.planner.judge import Validation

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "tests" / "published"
OPEN_RECORDS = (
    PUBLISHED / "published_llm.jsonl",
    PUBLISHED / "published_single_gpu.jsonl",
)
WORST_ROWS = 15
INTRODUCTION = """\
# Accuracy

How far predictions are from published measurements. Written by `make accuracy` from the run records
in `tests/published/`; every number here can be had again with one command.

- error = predicted ÷ measured − 1; MAPE is the mean of |error|. In the mean over sources every
  group counts the same, however many rows it has.
- *in 80 %*: share of the measurements inside the predicted 80 % interval.
- Two null models know the FLOPs of a step and the peak of the device, and nothing else. *50 % HFU*
  takes half of the peak. *best constant* takes the constant with the least MAPE on the other four
  folds of the same group (5-fold by configuration: one model in one layout is never in two folds);
  a group of one configuration takes the constant of the other groups.
- The planner never sees the name of a source: its constants depend on the software stack and its
  date, on what the record says was switched on, and on the device. About ten of them were set with
  these very rows in view, so the table is not a blind test. Four rest on one source alone: launches
  from Python (vTrain), ROCm on CDNA3 (milabench), the gathers of DeepSpeed in 2021 (Narayanan et
  al.), and FlashAttention-2 on Hopper (llm-foundry).
- Rows that this version cannot predict are listed at the end of each part with the reason.
"""


def main() -> None:
    options = parse_options()
    parts = [INTRODUCTION]
    for path in options.runs:
        started_s = time.perf_counter()
        answer = validate([path])
        print(f"{path.name}: {len(answer.rows)} rows, {time.perf_counter() - started_s:.1f} s")
        parts.append(section(path, answer))
    options.out.write_text("\n".join(parts), encoding="utf-8")
    print(f"wrote {options.out}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path, default=list(OPEN_RECORDS))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "accuracy.md")
    return parser.parse_args()


def section(path: Path, answer: Validation) -> str:
    """Return one part of the page: everything about one record file."""
    return f"## {path.name}\n\n{render_markdown(answer, WORST_ROWS)}"


if __name__ == "__main__":
    main()
