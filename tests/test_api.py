"""The public surface: its names are frozen, and importing it stays cheap."""

import subprocess
import sys

import gpuplan
from gpuplan import api


def test_the_public_names_are_these() -> None:
    assert api.__all__ == sorted(api.__all__)
    assert set(api.__all__) == {
        "Choices",
        "Estimate",
        "GpuplanError",
        "Inputs",
        "Layout",
        "Machine",
        "Money",
        "Plan",
        "Profile",
        "Question",
        "Work",
        "estimate",
        "fits",
        "keep",
        "kept_estimates",
        "kept_plan",
        "parse_layout",
        "profile",
        "read_inputs",
        "sources",
        "timeline",
        "validate",
    }


def test_every_public_name_is_there_from_the_package_too() -> None:
    for name in api.__all__:
        assert getattr(gpuplan, name) is getattr(api, name)


def test_importing_it_brings_in_nothing_heavy() -> None:
    heavy = "torch", "numpy", "sqlalchemy", "rich"
    code = f"import sys, gpuplan.api; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
