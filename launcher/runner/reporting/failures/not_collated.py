"""Samples that torch cannot put together to a batch: the file's, though no line of it fails."""

from __future__ import annotations

import traceback
from pathlib import Path

from .....catalog.errors import GpuplanError, UserFileError
from .....profiles.user_model.failures import is_users
from .worker_failure import FRAME

COLLATING = "torch/utils/data/_utils/collate.py"


def not_collated(error: BaseException, path: Path) -> GpuplanError | None:
    """Return the error for the user, if torch's `default_collate` failed and no line of the file.

    Args:
        error: as the training process has it, or as a process that loads data told it.
        path: the user's model file.
    """
    text = "".join(traceback.format_exception(error))
    files = [file for file, _, _ in FRAME.findall(text)]
    if not any(Path(one).as_posix().endswith(COLLATING) for one in files):
        return None
    if any(is_users(one, path) for one in files):
        return None
    what = text.strip().splitlines()[-1]
    return UserFileError(
        f"The samples of {path.name} cannot be put together to a batch: {what}",
        fix="give the data set a `collate_fn` attribute that does, such as the one a DataLoader is"
        " given (docs/model-file.md), or samples of one form and size.",
    )
