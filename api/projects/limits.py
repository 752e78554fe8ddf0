"""The project that a launch counts for: its file's name and limits, with their lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...catalog.errors import UsageError
from ...planner.budget.project.project import PROJECT_FILE
from .project_file import line_of, read_project, read_project_tree

if TYPE_CHECKING:
    from ...launcher.store.project_limits import ProjectFile

SUFFIXES = (".yaml", ".yml")


def limits_of_file(path: str | Path) -> ProjectFile:
    """Return what launches need to know of a project's file.

    Args:
        path: The file, or the folder that holds a `gpuplan.yaml`.

    Raises:
        UsageError: The file is unreadable or malformed, or a value is wrong; with its line.
    """
    from ...launcher.store.project_limits import ProjectFile
    from ...launcher.store.reports import newest_report

    path = Path(path)
    path = path / PROJECT_FILE if path.is_dir() else path
    project = read_project(path)
    tree = read_project_tree(path)
    limits = project.limits
    places = [("run",), ("month",), ("total",), *(("owners", name) for name in limits.owners)]
    report = newest_report(path)
    rows = () if report is None else report.experiments
    return ProjectFile(
        name=project.name,
        path=path,
        limits=limits,
        lines={".".join(one): line_of(tree, ("limits", *one)) for one in places},
        plans=frozenset(row.plan_id for row in rows if row.plan_id is not None),
    )


def is_project_file(text: str) -> bool:
    """Return whether what is given for a project is a file, or a folder with one, and no name."""
    path = Path(text)
    is_path = path.name != text or text in (".", "..")
    return path.suffix.lower() in SUFFIXES or (is_path and (path / PROJECT_FILE).is_file())


def project_of_launch(
    given: str | Path | None, name: str | None, folder: Path
) -> tuple[ProjectFile | None, str | None]:
    """Return the project's file whose limits a launch obeys, and a note where it obeys none.

    Args:
        given: The file that the user names; None: the `gpuplan.yaml` of the folder, if it has one.
        name: The project that the user names; one of another name does not obey what lies there.
        folder: Where the command is run.

    Raises:
        UsageError: The file is unreadable or malformed; with its line.
    """
    from ...catalog.text.same_name import is_same_name

    if given is not None:
        return limits_of_file(given), None
    if not (folder / PROJECT_FILE).is_file():
        return None, None
    # As it is called here, so that messages have no long path.
    here = Path(PROJECT_FILE) if folder == Path.cwd() else folder / PROJECT_FILE
    if name is None:
        return limits_of_file(here), None
    try:
        found = limits_of_file(here)
    except UsageError as error:
        return None, f"the limits of {here} are not checked: {error.message.rstrip('.')}"
    if is_same_name(name, found.name):
        return found, None
    return None, (
        f"the limits of {here} are not checked: it is of the project {found.name}, and this launch"
        f" of {name} (--project {here} counts it there)"
    )
