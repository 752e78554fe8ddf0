"""The task of a launch that goes on: bought as it is now, with what was fetched sent back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ...catalog.errors import UsageError
from ...catalog.files import write_atomically
from ..store.launch_record import LaunchRecord
from ..task_file import OUT_FOLDER, write_tasks


def rewrite_task(record: LaunchRecord, *, spot: bool) -> None:
    """Write the task of a launch anew: bought as it is now, with what was fetched sent back.

    Raises:
        UsageError: it is gone.
    """
    tasks = task_bought(record, spot=spot)
    if record.fetch is not None and Path(record.fetch).is_dir():
        tasks[0].setdefault("file_mounts", {})[f"~/{OUT_FOLDER}"] = record.fetch
    write_atomically(_path(record), write_tasks(tasks))


def task_bought(record: LaunchRecord, *, spot: bool) -> list[dict[str, Any]]:
    """Return the tasks of a launch as they are bought now.

    Of two tasks the second is the one that is bought on demand.

    Raises:
        UsageError: they are gone.
    """
    path = _path(record)
    try:
        tasks = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError:
        raise UsageError(
            f"{path} is gone, and it is what would be launched.", fix="launch the plan again."
        ) from None
    if not spot:
        tasks = [{**tasks[-1], "name": record.cluster}]
    resources = tasks[0]["resources"]
    resources.pop("use_spot", None)
    if spot:
        resources["use_spot"] = True
    return tasks


def _path(record: LaunchRecord) -> Path:
    return Path(record.folder) / "task.yaml"
