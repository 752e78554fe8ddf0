"""Which builds of torch are published, for which hosts, and with kernels for which devices.

The table is kept by hand in `data/curated/`; releases older than gpuplan's own torch are those that
people pin for scripts of their own.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from .embedded import CURATED_DIR

HostArchitecture = Literal["x86_64", "aarch64"]
Release = tuple[int, int]
"""(2, 13): a patch release has the kernels of its minor release."""


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """One published build of torch, over the releases that have it."""

    host_architecture: str
    build: str
    """As in the address of its wheels: "cu126", "rocm"."""
    first: Release
    last: Release | None
    """None: it is still published."""
    pypi_first: Release | None
    """From which release on PyPI has this build; None: never."""
    pypi_last: Release | None
    architectures: tuple[str, ...]
    """Compute capabilities ("8.6") or, of ROCm, targets ("gfx942") that have kernels in it."""
    source: str

    def is_of(self, release: Release) -> bool:
        """Return whether this release was published in this build."""
        return self.first <= release and (self.last is None or release <= self.last)

    def is_on_pypi(self, release: Release) -> bool:
        """Return whether `pip install torch` of this release brings this build."""
        begun = self.pypi_first is not None and self.pypi_first <= release
        return begun and (self.pypi_last is None or release <= self.pypi_last)

    def runs_on(self, architecture: str) -> bool:
        """Return whether it has kernels for a device ("8.9", "gfx942").

        Kernels for compute capability 8.6 run on 8.6 and 8.9, but neither on 8.0 nor on 9.0
        (NVIDIA, CUDA C++ Programming Guide, binary compatibility); ROCm's run on their own target.
        """
        if architecture.startswith("gfx"):
            return architecture in self.architectures
        major, minor = _capability(architecture)
        return any(
            theirs[0] == major and theirs[1] <= minor
            for theirs in map(_capability, self.architectures)
        )


@cache
def torch_builds() -> tuple[TorchBuild, ...]:
    """Return the published builds of torch."""
    return tuple(
        TorchBuild(
            host_architecture=row["host_architecture"],
            build=row["build"],
            first=release_of(row["torch_first"]),
            last=_release(row["torch_last"]),
            pypi_first=_release(row["pypi_first"]),
            pypi_last=_release(row["pypi_last"]),
            architectures=tuple(row["architectures"].split()),
            source=row["source"],
        )
        for row in _rows("torch_builds.csv")
    )


@cache
def _arm_hosts() -> dict[str, str]:
    return {row["accelerator"]: row["host_architecture"] for row in _rows("host_architectures.csv")}


def host_architecture(accelerator: str) -> str:
    """Return the architecture of the processors that an accelerator is sold with.

    Args:
        accelerator: its canonical name; what is not listed has x86_64 hosts.
    """
    return _arm_hosts().get(accelerator, "x86_64")


def release_of(version: str) -> Release:
    """Return the minor release of a version of torch.

    >>> release_of("2.13.0+cpu")
    (2, 13)
    """
    found = re.match(r"(\d+)(?:\.(\d+))?", version)
    if found is None:
        raise ValueError(f"{version!r} is no version.")
    return int(found[1]), int(found[2] or 0)


def _release(cell: str) -> Release | None:
    return release_of(cell) if cell else None


def _capability(text: str) -> tuple[int, int]:
    major, minor = text.split(".") if text[0].isdigit() else (0, 0)
    return int(major), int(minor)


def _rows(name: str) -> list[dict[str, str]]:
    with (CURATED_DIR / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
