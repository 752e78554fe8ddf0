"""What a project's sets of runs are called: every figure of a report is kept by these names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...planner.budget.project.project import Project
from .grid import params_of_model, rungs, variants

Place = tuple[int | str, ...]
"""Where something stands in a project file: ("experiments", "sft", "ladder", 0)."""


def run_names(project: Project, folder: Path) -> Iterator[tuple[str, Place, str]]:
    """Yield the name of every set of runs, where it stands in the file, and what it is in words.

    Args:
        project: whose runs.
        folder: where its model files are.
    """
    for name, spec in project.experiments.items():
        place: Place = ("experiments", name)
        if spec.model is None:
            yield name, place, f"experiment {name}"
            continue
        suffixes = [one for one, _, _ in variants(spec, params_of_model(spec.model, folder))]
        for number, (title, _, _) in enumerate(rungs(name, spec)):
            rung: Place = ("ladder", number) if spec.ladder else ()
            of_rung = f"rung {number + 1} of {name}" if spec.ladder else f"experiment {name}"
            for suffix in suffixes:
                words = f"{of_rung} with {suffix[1:-1]}" if suffix else of_rung
                yield title + suffix, (*place, *rung), words


def same_names(
    project: Project, folder: Path
) -> tuple[str, tuple[Place, str], tuple[Place, str]] | None:
    """Return a name that two sets of runs would have, and both; None where all names differ."""
    found: dict[str, tuple[Place, str]] = {}
    for name, place, words in run_names(project, folder):
        if name in found:
            return name, found[name], (place, words)
        found[name] = place, words
    return None
