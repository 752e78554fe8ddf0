"""Which published build of torch a node installs, by the driver that it finds there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ....catalog.errors import UsageError
from ....catalog.torch_builds import (
    Release,
    TorchBuild,
    host_architecture,
    release_of,
    torch_builds,
)
from ....catalog.types import Accelerator

OLDEST_OF_RUNNER = "2.13"
"""Of torch, as gpuplan itself needs it (pyproject.toml): the runner on the nodes is the same."""
OLDEST_DRIVERS = {11: 450, 12: 525, 13: 580}
"""CUDA → oldest driver branch that runs any of its minor releases:
docs.nvidia.com/deploy/cuda-compatibility, "Minor Version Compatibility"."""
BLACKWELL = 10.0
BLACKWELL_DRIVER = 570
"""First branch that knows Blackwell: docs.nvidia.com/cuda, release notes of CUDA 12.8."""
CAPABILITY = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, kw_only=True)
class Wheels:
    """A build of torch, and the oldest driver branch that runs it on a device."""

    build: str
    """As in the address of its wheels: "cu130"."""
    oldest_driver: int


def wheels_for(version: str, accelerator: Accelerator) -> tuple[Wheels, ...]:
    """Return the builds to try on a node, best first: the first that its driver runs is taken.

    The build on PyPI comes first, as the one that most people run, then the newest CUDA. A device
    whose compute capability is not known is left to the driver alone.

    Args:
        version: of torch, such as "2.13.0".
        accelerator: NVIDIA's.

    Raises:
        UsageError: this version was published in no build with kernels for the device.
    """
    release, host = release_of(version), host_architecture(accelerator.name)
    capability = accelerator.compute_capability
    known = capability if capability and CAPABILITY.fullmatch(capability) else None
    able = [
        build
        for build in torch_builds()
        if build.host_architecture == host
        and build.build.startswith("cu")
        and (known is None or build.runs_on(known))
    ]
    published = [build for build in able if build.is_of(release)]
    if not published:
        raise _unpublished(version, accelerator, host, able)
    published.sort(key=lambda build: (build.is_on_pypi(release), _cuda(build)), reverse=True)
    tried: list[Wheels] = []
    for build in published:
        oldest = OLDEST_DRIVERS[_cuda(build)[0]]
        if known is not None and float(known) >= BLACKWELL:
            oldest = max(oldest, BLACKWELL_DRIVER)
        # What needs no older a driver than one before it is never reached.
        if all(oldest < one.oldest_driver for one in tried):
            tried.append(Wheels(build=build.build, oldest_driver=oldest))
    return tuple(tried)


def _cuda(build: TorchBuild) -> tuple[int, int]:
    """Return (12, 6) for "cu126"."""
    digits = build.build.removeprefix("cu")
    return int(digits[:-1]), int(digits[-1])


def _unpublished(
    version: str, accelerator: Accelerator, host: str, able: Sequence[TorchBuild]
) -> UsageError:
    capability = accelerator.compute_capability
    device = accelerator.name + (f" (compute capability {capability})" if capability else "")
    return UsageError(
        f"gpuplan knows no published build of torch {version} for {host} hosts with kernels for"
        f" {device}.",
        fix=f"{_releases(able)}give --image docker:… with a torch that runs there, or --setup with"
        " the lines that install one.",
    )


def _releases(able: Sequence[TorchBuild]) -> str:
    """Return which releases to pin instead; nothing where there is none."""
    if not able:
        return ""
    first = _text(min(build.first for build in able))
    ends = [build.last for build in able]
    known = [last for last in ends if last is not None]
    last = f"{first} or newer" if None in ends else f"{first} to {_text(max(known))}"
    return f"take torch {last}, or "


def _text(release: Release) -> str:
    return ".".join(map(str, release))
