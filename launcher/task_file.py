"""The task of a launch as its folder holds it, and the folders that it names on a node.

What a node holds, below its home:
    sky_workdir/    the user's project
    gpuplan-job/    the guard and its orders; the runner and its job, where gpuplan's own trains
    gpuplan-env/    the environment
    gpuplan-out/    results, where neither a bucket (/outputs) nor a shared folder takes them
    gpuplan-stop    made by `gpuplan stop`: write a checkpoint and end
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..catalog.files import write_atomically
from .labels import with_store

JOB_FOLDER = "gpuplan-job"
"""Below the home of a node, as the next two."""
OUT_FOLDER = "gpuplan-out"
WORKDIR = "sky_workdir"
"""SkyPilot's own name."""
NO_AUTODOWN = ("verda",)
"""SkyPilot 0.14 refuses `autostop` there: a command of this computer alone ends its machines."""
UPLOAD_MARK = "gpuplan: not all results were in the bucket after"
"""Where the job was ended that waited for them."""


def write_tasks(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return tasks as SkyPilot reads them, the scripts line by line."""
    return yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000
    )


def label_task(path: Path, store_id: str) -> None:
    """Write the id of the store into a task's file, unless it is there already.

    Raises:
        OSError: the file cannot be read or written.
    """
    tasks = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    labelled = [with_store(one, store_id) for one in tasks]
    if labelled != tasks:
        write_atomically(path, write_tasks(labelled))


class _Dumper(yaml.SafeDumper):
    """Writes scripts as they are read, line by line."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: a task says everything in place."""
        return True


def _script(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _script)
