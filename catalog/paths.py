"""Where gpuplan keeps its files: one folder for each of data, cache and settings.

`GPUPLAN_HOME` puts all three under one folder; without it they are where the operating system
wants them (`platformdirs`). Nothing here makes a folder: who writes, makes it.
"""

import os
from pathlib import Path

import platformdirs

HOME_VARIABLE = "GPUPLAN_HOME"


def data_dir() -> Path:
    """Return the folder of what the user would miss: plans, launches, run records."""
    return _home("data") or Path(platformdirs.user_data_dir("gpuplan", appauthor=False))


def cache_dir() -> Path:
    """Return the folder of what can be made again: traced profiles, downloaded prices."""
    return _home("cache") or Path(platformdirs.user_cache_dir("gpuplan", appauthor=False))


def config_dir() -> Path:
    """Return the folder of the settings file."""
    return _home("config") or Path(platformdirs.user_config_dir("gpuplan", appauthor=False))


def _home(kind: str) -> Path | None:
    home = os.environ.get(HOME_VARIABLE)
    return Path(home).expanduser() / kind if home else None
