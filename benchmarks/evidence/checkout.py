"""This checkout as the package gpuplan, on machines that have torch and nothing else."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def package_module(name: str) -> ModuleType:
    """Return a module of gpuplan, whether it is installed or not."""
    register_package()
    return importlib.import_module(f"gpuplan.{name}")


def register_package() -> None:
    """Make this checkout importable as gpuplan where it is not installed."""
    if "gpuplan" in sys.modules:
        return
    found = importlib.util.spec_from_file_location(
        "gpuplan", ROOT / "__init__.py", submodule_search_locations=[str(ROOT)]
    )
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["gpuplan"] = module
    found.loader.exec_module(module)
