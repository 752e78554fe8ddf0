"""Trace models of popular libraries and write docs/compatibility.md:  make compatibility.

    .venv-compatibility/bin/python benchmarks/trace_libraries.py [--only WORD] [--limit-s 120]

With `--only`, models with that word in `package/name` are traced, and what the last run found of
the others is kept. Exits 1 when fewer than `LEAST_SHARE` of all models are traced.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib.metadata import version
from pathlib import Path

from compatibility.page import page
from compatibility.trials import Model, Trial, listed_models, trace

DOCS = Path(__file__).resolve().parents[1] / "docs"
LEAST_SHARE = 0.92


def main() -> None:
    options = parse_options()
    results = options.out.with_suffix(".jsonl")
    known = read(results) if options.only else {}
    models = list(listed_models())
    todo = [one for one in models if not options.only or options.only in one.label]
    known |= trace_all(todo, options.workers, options.limit_s)
    trials = [known[one.label] for one in models if one.label in known]
    results.write_text("".join(f"{one.to_json()}\n" for one in trials), encoding="utf-8")
    text = page(
        trials,
        limit_s=options.limit_s,
        date=date.today().isoformat(),
        torch=version("torch").partition("+")[0],
        python=platform.python_version(),
        workers=options.workers,
        cores=os.cpu_count(),
    )
    options.out.write_text(text, encoding="utf-8")
    traced = sum(one.traced for one in trials)
    print(f"wrote {options.out}: {traced} of {len(trials)} traced")
    sys.exit(0 if traced >= LEAST_SHARE * len(trials) else 1)


def read(path: Path) -> dict[str, Trial]:
    """Return what an earlier run found, by `Model.label`."""
    if not path.exists():
        return {}
    trials = map(Trial.from_json, path.read_text(encoding="utf-8").splitlines())
    return {f"{one.package}/{one.name}": one for one in trials}


def trace_all(models: list[Model], workers: int, limit_s: float) -> dict[str, Trial]:
    """Return what came out of each model, by `Model.label`; print each as it ends."""

    def run(model: Model) -> tuple[str, Trial]:
        trial = trace(model, limit_s=limit_s)
        word = "traced" if trial.traced else f"REFUSED: {trial.message}"
        print(f"{model.label}: {trial.seconds:.1f} s, {word}", flush=True)
        return model.label, trial

    with ThreadPoolExecutor(workers) as pool:
        return dict(pool.map(run, models))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", metavar="WORD", help="trace models with this in their name")
    parser.add_argument("--limit-s", type=float, default=120, help="for one model; default: 120")
    parser.add_argument("--workers", type=int, default=2, help="models at a time; default: 2")
    parser.add_argument("--out", type=Path, default=DOCS / "compatibility.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
