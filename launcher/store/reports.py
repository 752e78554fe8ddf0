"""Budget reports that were made: one file each, so that a report can be shown as it was then."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from pydantic import ValidationError

from ...catalog.files import write_atomically
from ...catalog.paths import data_dir
from ...planner.budget.report.report import BudgetReport

FOLDER = "reports"
SUFFIX = ".json.gz"


def keep_report(report: BudgetReport, project: Path, *, folder: Path | None = None) -> None:
    """Keep a report of a project file; of those of a day that say the same, the last one.

    Args:
        report: what was made.
        project: its file; reports of one project are those of one file.
        folder: of all kept reports; default: in the data folder.

    Raises:
        OSError: the disk does not allow it; the report itself is none the worse.
    """
    newest = next(_newest_first(_folder(project, folder)), None)
    stamp = report.generated_at.replace(":", "").replace("+0000", "Z")
    # The same bytes for the same report: no time of its own in the archive's header.
    content = gzip.compress(report.model_dump_json().encode(), mtime=0)
    file = _folder(project, folder) / f"{stamp}{SUFFIX}"
    write_atomically(file, content, mode=0o600)
    # The report of a day is shown again as its reader has it, with the time that stands in it.
    if newest is not None and newest[0] != file and _says_the_same_that_day(newest[1], report):
        newest[0].unlink(missing_ok=True)


def kept_report(project: Path, as_of: date, *, folder: Path | None = None) -> BudgetReport | None:
    """Return the last report of a project that was made up to a day; None where there is none.

    Args:
        project: its file.
        as_of: the last day that counts.
        folder: of all kept reports; default: in the data folder.
    """
    for _, report in _newest_first(_folder(project, folder)):
        if report.generated_at[:10] <= as_of.isoformat():
            return report
    return None


def newest_report(project: Path, *, folder: Path | None = None) -> BudgetReport | None:
    """Return the newest report of a project that can be read; None where there is none.

    Args:
        project: its file.
        folder: of all kept reports; default: in the data folder.
    """
    newest = next(_newest_first(_folder(project, folder)), None)
    return None if newest is None else newest[1]


def kept_days(project: Path, *, folder: Path | None = None) -> list[str]:
    """Return the days on which kept reports of a project were made, the newest first."""
    found = (report.generated_at[:10] for _, report in _newest_first(_folder(project, folder)))
    return list(dict.fromkeys(found))


def newest_reports(*, folder: Path | None = None) -> dict[str, BudgetReport]:
    """Return the newest report of each project that can be read, by `key_of`, newest first.

    Args:
        folder: of all kept reports; default: in the data folder.
    """
    found = {
        one.name: newest[1]
        for one in (folder or data_dir() / FOLDER).glob("*/")
        if (newest := next(_newest_first(one), None)) is not None
    }
    ordered = sorted(found.items(), key=lambda item: item[1].generated_at, reverse=True)
    return dict(ordered)


def key_of(project: Path) -> str:
    """Return what tells the reports of one project file from those of others."""
    return hashlib.sha256(str(project.resolve()).encode()).hexdigest()[:16]


def _folder(project: Path, folder: Path | None) -> Path:
    return (folder or data_dir() / FOLDER) / key_of(project)


def _newest_first(folder: Path) -> Iterator[tuple[Path, BudgetReport]]:
    """Yield the reports that can be read; what is damaged or of a later version is passed over."""
    for file in sorted(folder.glob(f"*{SUFFIX}"), reverse=True):
        with contextlib.suppress(OSError, EOFError, ValidationError):
            yield file, BudgetReport.model_validate_json(gzip.decompress(file.read_bytes()))


def _says_the_same_that_day(earlier: BudgetReport, report: BudgetReport) -> bool:
    is_of_day = earlier.generated_at[:10] == report.generated_at[:10]
    return is_of_day and _but_for_time(earlier) == _but_for_time(report)


def _but_for_time(report: BudgetReport) -> BudgetReport:
    return report.model_copy(update={"generated_at": ""})
