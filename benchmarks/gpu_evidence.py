"""Measure real training steps of the examples and keep them as run records: the evidence.

One command, on a machine with torch, a GPU and this checkout (gpuplan need not be installed):

    python benchmarks/gpu_evidence.py --budget-s 1500
    python benchmarks/gpu_evidence.py --list
    python benchmarks/gpu_evidence.py --only resnet50 --only gpt2-124m.tf32

Cases run in the order of `--list`, the most informative first, until the budget is spent; every
result is written at once, and the next call goes on where this one ended. docs/evidence.md says
what the records hold and how they are evaluated.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from evidence.cases import Case, all_cases, read_cases
from evidence.pool import CASE_LIMIT_S, EvidenceError, workers

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
ALIASES = ROOT / "catalog" / "data" / "aliases.csv"
TORCH_RELEASED = {
    "2.4": "2024-07", "2.5": "2024-10", "2.6": "2025-01", "2.7": "2025-04", "2.8": "2025-08",
    "2.9": "2025-10", "2.10": "2026-01", "2.11": "2026-03", "2.13": "2026-07",
}  # fmt: skip
"""Months of torch's releases (github.com/pytorch/pytorch/releases); others count as of today."""
DEFAULT_OUT = ROOT / "tests" / "published" / "own_gpu.jsonl"
ONE_DEVICE = {
    **dict.fromkeys(("data", "shard", "tensor", "pipeline", "virtual_stages"), 1),
    **dict.fromkeys(("context", "expert"), 1),
    "zero_stage": 0,
    "sequence_parallel": False,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is left to measure; return the exit code (1 if a case failed)."""
    options = parse_options(arguments)
    try:
        cases = chosen_cases(options)
        if options.list:
            for case in cases:
                print(f"{case.id:<44} about {case.expected_s:3.0f} s")
            return 0
        return measure(cases, options)
    except EvidenceError as error:
        print(f"gpu_evidence: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; what was measured is kept", file=sys.stderr)
        return 130


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what was typed."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or ""), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--list", action="store_true", help="show the cases in order and measure nothing")
    add("--only", action="append", default=[], metavar="WORD", help="cases whose id holds WORD")
    add("--cases", type=Path, metavar="FILE", help="measure the cases of this JSON file instead")
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--accelerator", metavar="NAME", help="catalogue name; default: from the device's own name")
    add("--out", type=Path, default=DEFAULT_OUT, help="run records, kept and added to")
    add("--known", type=Path, action="append", default=[], help="skip cases recorded here too")
    add("--again", action="store_true", help="measure recorded cases again and replace them")
    add("--budget-s", type=float, default=1500.0, help="stop after this many seconds (1500)")
    add("--measure-s", type=float, default=2.0, help="seconds of steps to measure a case (2)")
    add("--fresh", action="store_true", help="a new process for every case")
    return parser.parse_args(arguments)


def chosen_cases(options: argparse.Namespace) -> tuple[Case, ...]:
    """Return the cases to look at, in order.

    Raises:
        EvidenceError: the file of cases is wrong, or no case is left.
    """
    if options.cases is None:
        cases = all_cases()
    else:
        try:
            cases = read_cases(options.cases)
        except (OSError, ValueError) as error:
            raise EvidenceError(f"{options.cases}: {error}; docs/evidence.md shows one") from None
    if options.only:
        cases = tuple(case for case in cases if any(word in case.id for word in options.only))
    if not cases:
        raise EvidenceError(f"no case holds {' or '.join(options.only)}; --list shows them all")
    return cases


def measure(cases: Sequence[Case], options: argparse.Namespace) -> int:
    """Measure cases until the budget is spent; return the exit code."""
    started_s = time.perf_counter()
    counts = dict.fromkeys(("measured", "oom", "failed", "known", "no time"), 0)
    with workers(options.device, options.measure_s, fresh=options.fresh) as pool:
        accelerator = options.accelerator or accelerator_named(pool.environment["device_name"])
        records = Records(options.out)
        known = set(records.ids) if not options.again else set()
        for path in options.known:
            known |= set(Records(path).ids)
        for case in cases:
            record_id = f"own/{accelerator}/{case.id}"
            left_s = options.budget_s - (time.perf_counter() - started_s)
            if record_id in known:
                counts["known"] += 1
                continue
            if left_s < case.expected_s:
                counts["no time"] += 1
                continue
            outcome = pool.run(case, min(CASE_LIMIT_S, left_s))
            counts[outcome["kind"]] += 1
            print(describe(case, outcome), flush=True)
            if outcome["kind"] in ("measured", "oom"):
                records.put(
                    run_record(case, outcome, pool.environment, accelerator, options.out.parent)
                )
    print(", ".join(f"{count} {kind}" for kind, count in counts.items() if count))
    print(f"records: {options.out}")
    return 1 if counts["failed"] else 0


def _dated(torch_version: str) -> str:
    """Return the month of the software, which predictions go by, and the day of the measurement."""
    today = date.today().isoformat()
    month = TORCH_RELEASED.get(".".join(torch_version.split(".")[:2]))
    return f"{month} (torch {torch_version}; measured {today})" if month else today


def run_record(
    case: Case,
    outcome: dict[str, Any],
    environment: dict[str, Any],
    accelerator: str,
    folder: Path,
) -> dict[str, Any]:
    """Return one run record (docs/json.md) of a case that was measured or ran out of memory."""
    facts = outcome["facts"]
    is_example = (EXAMPLES / case.model).is_file()
    nothing = {"step_time_s": None, "peak_memory_gib": None, "memory_meaning": None, "oom": True}
    return {
        "id": f"own/{accelerator}/{case.id}",
        "source": "benchmarks/gpu_evidence.py",
        "source_group": f"own-{accelerator}",
        "date": _dated(environment["torch"]),
        "model": case.model if is_example else os.path.relpath(case.model, folder),
        "model_name": case.name,
        "params": case.params,
        "parameters_stated": facts.get("parameters"),
        "trainable_parameters": facts.get("trainable_parameters"),
        "accelerator": accelerator,
        "accelerator_as_stated": environment["device_name"],
        "accelerators": 1,
        "per_node": 1,
        "inter_node_gbit_s": None,
        "layout": ONE_DEVICE,
        "precision": case.precision,
        "micro_batch": case.micro_batch,
        "grad_accum": 1,
        "global_batch": case.micro_batch,
        "recompute": case.recompute,
        "recomputed_blocks": facts.get("recomputed_blocks"),
        "attention": case.attention,
        "compile": case.compile,
        "stack": "torch-compile" if case.compile else "torch-eager",
        "optimizer": None,  # The model file's own, as it is written there.
        "optimizer_built": facts.get("optimizer_built"),
        "offload": False,
        "features": features_of(case, built_in_fp32=facts.get("built_in_fp32", False)),
        "measured": outcome["measured"] if outcome["kind"] == "measured" else nothing,
        "error": outcome["error"],
        "environment": environment,
        "command": command_of(case),
        "assumed": [],
    }


def features_of(case: Case, *, built_in_fp32: bool) -> list[str]:
    """Return what the loop does, as run records name it.

    No variable of it holds the logits: `compute_loss` returns the loss alone.
    """
    scaled = ["grad_scaler"] if case.precision == "fp16-amp" else []
    return [*scaled, "freed-logits", *(["built-in-fp32"] if built_in_fp32 else [])]


def command_of(case: Case) -> str:
    """Return the command that measures this case again, from the root of a checkout."""
    source = [] if case in all_cases() else ["--cases", "FILE"]
    words = ["python", "benchmarks/gpu_evidence.py", *source, "--only", case.id, "--again"]
    return shlex.join(words)


def accelerator_named(device_name: str) -> str:
    """Return the catalogue's name of a device that calls itself so; "CPU" for the host.

    Raises:
        EvidenceError: the name is unknown, or means several devices.
    """
    if device_name == "CPU":
        return "CPU"
    with ALIASES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            same = _folded(row["alias"]) == _folded(device_name)
            if same and row["canonical"] and row["certainty"] in ("exact", "assumed"):
                return row["canonical"]
    raise EvidenceError(
        f"the device calls itself {device_name!r}, which is no one device of the catalogue;"
        " name it with --accelerator, for example --accelerator H200-141GB-SXM"
    )


def describe(case: Case, outcome: dict[str, Any]) -> str:
    """Return one line about a case that ran."""
    if outcome["kind"] != "measured":
        return f"{case.id:<44} {outcome['kind']}: {outcome['error']}"
    measured = outcome["measured"]
    spread = (measured["step_time_p90_s"] - measured["step_time_p10_s"]) / measured["step_time_s"]
    text = f"{case.id:<44} {measured['step_time_s'] * 1e3:9.2f} ms  spread {spread:5.1%}"
    peak_gib = measured.get("peak_memory_gib")
    if peak_gib is not None:
        text += f"  {peak_gib:7.2f} GiB allocated, {measured['peak_reserved_gib']:7.2f} reserved"
    slowed_by = (measured.get("under_load") or {}).get("slowed_by")
    return f"{text}  slowed by {', '.join(slowed_by)}" if slowed_by else text


class Records:
    """The run records of one file, written whole after every change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: dict[str, str] = {}
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            for line in filter(str.strip, text.split("\n")):
                self._lines[json.loads(line)["id"]] = line
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EvidenceError(f"{path} holds something else than run records: {error}") from None

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of all records."""
        return tuple(self._lines)

    def put(self, record: dict[str, Any]) -> None:
        """Add a record, or replace the one with its id."""
        self._lines[record["id"]] = json.dumps(record, allow_nan=False)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_text("".join(f"{line}\n" for line in self._lines.values()), encoding="utf-8")
        new.replace(self._path)


def _folded(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


if __name__ == "__main__":
    sys.exit(main())
