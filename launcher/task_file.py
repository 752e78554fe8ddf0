"""The task of a launch as it lies in the launch's folder."""

from __future__ import annotations

from pathlib import Path

import yaml

from ..catalog.files import write_atomically
from .labels import with_store
from .prepare.task import write_tasks


def label_task(path: Path, store_id: str) -> None:
    """Write the id of the store into a task's file, unless it is there already.

    Raises:
        OSError: the file cannot be read or written.
    """
    tasks = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    labelled = [with_store(one, store_id) for one in tasks]
    if labelled != tasks:
        write_atomically(path, write_tasks(labelled))
