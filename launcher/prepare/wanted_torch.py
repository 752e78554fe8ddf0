"""Which torch a project asks for, and its refusal where it cannot train on rented machines."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from ...catalog.errors import UsageError
from .request import LaunchRequest
from .task.node_setup import Environment
from .task.torch_wheels import OLDEST_OF_RUNNER

ON_A_NODE = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
PYTORCH_IMAGE = re.compile(r"docker:(?:docker\.io/)?pytorch/pytorch:v?(\d+\.\d+(?:\.\d+)?)\b")
"""PyTorch's own images have its version in their tag; other people's have not."""
EITHER = "or train with a script of your own, --command train.py"


def wanted_torch(path: Path) -> str | None:
    """Return the requirement of torch in a file of packages, as "torch<2.10"; None without one.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if path.name == "uv.lock":
            packages = tomllib.loads(text).get("package", [])
            versions = [one.get("version") for one in packages if one.get("name") == "torch"]
            return f"torch=={versions[0]}" if versions and versions[0] else None
        if path.name == "pyproject.toml":
            lines = tomllib.loads(text).get("project", {}).get("dependencies", [])
        else:
            lines = text.splitlines()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, AttributeError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}.", fix="correct it, or give --setup instead."
        ) from None
    found = [_of_torch(str(line)) for line in lines]
    return next((one for one in found if one is not None), None)


def pinned_version(wanted: str | None) -> str | None:
    """Return the version that a requirement fixes, without its build; None where it fixes none.

    >>> pinned_version("torch==2.13.0+cu130"), pinned_version("torch==2.13.*")
    ('2.13.0', None)
    """
    if wanted is None:
        return None
    for one in Requirement(wanted).specifier:
        if one.operator in ("==", "===") and not one.version.endswith(".*"):
            return one.version.partition("+")[0]
    return None


def refuse_torch(environment: Environment, request: LaunchRequest) -> None:
    """Refuse a torch that would end the job on machines that are paid for.

    Raises:
        UsageError: it is older than gpuplan's runner needs, or what would be installed is not
            what the project asks for.
    """
    if request.command is None:
        _refuse_image(request.image or "")
    if request.setup is not None or environment.wanted_torch is None:
        return
    wanted, version = environment.wanted_torch, environment.torch_version
    where = f"{environment.found} asks for {wanted}"
    pinned = pinned_version(wanted)
    if request.command is None and pinned is not None and _is_old(pinned):
        raise UsageError(
            f"{where}, and gpuplan's runner needs torch {OLDEST_OF_RUNNER} or newer.",
            fix=f"ask for torch>={OLDEST_OF_RUNNER} there, give --setup with the lines that install"
            f" it, {EITHER}, which runs with the torch that you pin.",
        )
    if pinned is None and not Requirement(wanted).specifier.contains(version, prereleases=True):
        raise UsageError(
            f"{where}, and torch {version} would be installed, which is the one here.",
            fix="pin the version that you want, as torch==2.10.0, or widen what is asked for"
            f" (gpuplan's own runner needs torch {OLDEST_OF_RUNNER} or newer).",
        )


def _refuse_image(image: str) -> None:
    """Refuse one of PyTorch's own images whose tag says that it is too old for the runner."""
    named = PYTORCH_IMAGE.match(image)
    if named and _is_old(named[1]):
        raise UsageError(
            f"--image {image} brings torch {named[1]}, and gpuplan's runner needs torch"
            f" {OLDEST_OF_RUNNER} or newer.",
            fix=f"take a newer image, leave --image out, {EITHER}.",
        )


def _is_old(version: str) -> bool:
    return Version(version) < Version(OLDEST_OF_RUNNER)


def _of_torch(line: str) -> str | None:
    """Return a line of requirements as packaging writes it, if it asks a node for torch."""
    text = line.partition(" #")[0].partition(" --")[0].rstrip("\\ ").strip()
    try:
        one = Requirement(text)
    except InvalidRequirement:
        return None  # An option, a comment, an address.
    if one.name.lower() != "torch" or (one.marker and not one.marker.evaluate(ON_A_NODE)):
        return None
    return f"torch{one.specifier}"
