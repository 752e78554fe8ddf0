"""Whether a published build of torch drives a device, and which one has to be installed for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...catalog.reserved import reserved_how
from ...catalog.torch_builds import Release, TorchBuild, release_of, torch_builds
from ...catalog.types import Accelerator, Instance
from ...catalog.vocabulary import Purchase

WHEELS = "https://download.pytorch.org/whl"
OLDEST_TRACED: Release = (2, 12)
"""No older torch traces a model, so no older one drives what is planned here."""
_WRITTEN = {"NVIDIA": re.compile(r"\d+\.\d+"), "AMD": re.compile(r"gfx\w+")}
"""How the architectures are written that torch has builds for, by vendor."""


@dataclass(frozen=True, kw_only=True)
class BuildVerdict:
    """What the user must know of torch on a device."""

    note: str | None = None
    """Which build to install, where it is not the one that `pip install torch` brings."""
    is_older: bool = False
    """Whether only releases older than the one that the model was traced with have kernels."""
    why_not: str | None = None
    """Why no published build runs there; None when one does."""


def build_verdict(
    accelerator: Accelerator, host_architecture: str, torch_version: str
) -> BuildVerdict:
    """Return which published build of torch drives a device.

    Args:
        accelerator: the device; only NVIDIA's and AMD's GPUs are judged.
        host_architecture: "x86_64" or "aarch64".
        torch_version: the torch that the model was traced with, such as "2.13.0".
    """
    architecture = accelerator.compute_capability
    written = _WRITTEN.get(accelerator.vendor)
    if architecture is None or written is None or not written.fullmatch(architecture):
        return BuildVerdict()
    release = release_of(torch_version)
    able = [
        build
        for build in torch_builds()
        if build.first >= OLDEST_TRACED
        and build.host_architecture == host_architecture
        and build.runs_on(architecture)
    ]
    what = f"{accelerator.name} ({_named(architecture)})"
    if not able:
        return BuildVerdict(
            why_not=f"No published build of torch {_version(OLDEST_TRACED)} or newer for"
            f" {host_architecture} hosts has kernels for {what}: it takes one built from source."
        )
    now = [build for build in able if build.is_of(release)]
    if not now:
        newest = max(able, key=lambda build: build.last or release)
        return BuildVerdict(note=_older(what, newest), is_older=True)
    if any(build.is_on_pypi(release) for build in now):
        return BuildVerdict()
    return BuildVerdict(note=_other_build(what, now[-1], release))


def capacity_note(instance: Instance, purchase: Purchase) -> str | None:
    """Return that a type is hardly to be had on demand, where that is so and it is asked for so."""
    how = reserved_how(instance)
    if (
        how is None
        or purchase == "reserved"
        or (purchase == "spot" and "spot" in instance.usage_classes)
    ):
        return None
    return f"{instance.instance_type} is usually had by {how}: check your quota and capacity"


def _other_build(what: str, build: TorchBuild, release: Release) -> str:
    version = _version(release)
    if build.build == "rocm":
        return f"{what} needs torch's ROCm build: torch {version} from {WHEELS}/rocm…"
    last = "" if build.last is None else f", which torch {_version(build.last)} has last"
    return (
        f"{what} needs torch's {_toolkit(build)} build{last}:"
        f" pip install torch=={version}.* --index-url {WHEELS}/{build.build}"
    )


def _older(what: str, build: TorchBuild) -> str:
    last = _version(build.last or build.first)
    return (
        f"{what} is driven by torch {last} and older only:"
        f" pip install torch=={last}.* --index-url {WHEELS}/{build.build} ({_toolkit(build)})"
    )


def _version(release: Release) -> str:
    return ".".join(map(str, release))


def _toolkit(build: TorchBuild) -> str:
    """Return "CUDA 12.6" for "cu126"."""
    digits = build.build.removeprefix("cu")
    return f"CUDA {digits[:-1]}.{digits[-1]}" if digits.isdigit() else build.build


def _named(architecture: str) -> str:
    return architecture if architecture.startswith("gfx") else f"compute capability {architecture}"
