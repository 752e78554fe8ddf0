"""`gpuplan check`: which clouds can be rented from here, why not the others, and what to do.

SkyPilot asks each cloud with the user's own keys (`sky check`); gpuplan reads none of them. What
a cloud's tools say may hold a key, so nothing of it is passed on before `redaction`.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Literal, Protocol

from ...catalog.frozen import FrozenModel
from ...catalog.version import VERSION
from ..redaction import redacted
from .clouds import CLOUDS, credentials
from .home import enter

SCHEMA_VERSION: Literal["1.0"] = "1.0"
COMPUTE = "compute"
"""The ability to rent machines, as SkyPilot names it; the other one is storage."""
LONGEST_WHY = 300
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
CLOUD_LINE = re.compile(r"^ {2}(\S[^:]*): (enabled|disabled)\b")
REASON_LINE = re.compile(r"^\s+(?:Reason|Hint) \[[^\]]*\]: (.*)")
STEPS = re.compile(r" ?(?:Run the following|To configure|To install|Install:|Install it)")
"""How SkyPilot goes on after it has said what is wrong."""
APT_LINE = re.compile(r"\$ (sudo apt install [\w .-]*\w)")
MISSING_TOOLS = re.compile(r"not installed|pip install|No module named|import dependencies")
INSTALL = 'pip install "gpuplan[sky]"'


class CloudCheck(FrozenModel):
    """Whether machines can be rented from one cloud."""

    cloud: str
    enabled: bool
    why: str | None = None
    """Why not, as SkyPilot says it, without what looks like a key."""
    fix: str | None = None
    credentials: tuple[str, ...] = ()
    """Names of the files and variables that were found; never what they hold."""


class SkyCheck(FrozenModel):
    """What `gpuplan check` found."""

    schema_version: Literal["1.0"] = SCHEMA_VERSION
    gpuplan_version: str
    skypilot_version: str | None
    """Version of SkyPilot here; None where it is not installed."""
    problem: str | None = None
    """Why nothing could be asked."""
    fix: str | None = None
    clouds: tuple[CloudCheck, ...]

    @property
    def usable(self) -> bool:
        """Whether anything can be launched from here."""
        return any(cloud.enabled for cloud in self.clouds)


class CheckClient(Protocol):
    """SkyPilot, as far as `check` needs it."""

    def version(self) -> str | None:
        """Return what is installed; None if nothing is."""
        ...

    def check(self) -> tuple[set[str], str]:
        """Return the clouds that can be rented from, and all that SkyPilot wrote meanwhile."""
        ...


class SkyClient:
    """The real one, with the server that the user uses."""

    def version(self) -> str | None:
        """Return the version, without the seconds that importing SkyPilot takes."""
        try:
            return metadata.version("skypilot")
        except metadata.PackageNotFoundError:
            return None

    def check(self) -> tuple[set[str], str]:
        """Ask every cloud; SkyPilot starts its server if need be."""
        enter()
        # `sky.check` is a module of SkyPilot's, not this call.
        sdk: Any = import_module("sky.client.sdk")
        said = io.StringIO()
        workspaces = sdk.stream_and_get(sdk.check(None, False), output_stream=said)
        enabled = {
            cloud
            for clouds in workspaces.values()
            for cloud, abilities in clouds.items()
            if COMPUTE in abilities
        }
        return enabled, said.getvalue()


def check(
    client: CheckClient | None = None,
    *,
    home: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> SkyCheck:
    """Return which clouds are usable here.

    Args:
        client: SkyPilot; tests bring another.
        home: where files of credentials are looked for (their names only).
        environment: whose variables are looked for (their names only).
    """
    client = client or SkyClient()
    found = credentials(home or Path.home(), os.environ if environment is None else environment)
    version = client.version()
    if version is None:
        extras = ",".join(CLOUDS[cloud].extra for cloud in found if found[cloud]) or "aws"
        return _unasked(
            None,
            found,
            problem="SkyPilot, which rents the machines, is not installed",
            fix=f'{INSTALL} "skypilot[{extras}]"',
        )
    try:
        enabled, said = client.check()
    except Exception as error:
        # Whatever SkyPilot raises: the command is asked exactly when something is wrong.
        return _unasked(
            version,
            found,
            problem=f"SkyPilot could not be asked: {type(error).__name__}: {_short(str(error))}",
            fix="see `sky api info`; start its server with `sky api start`.",
        )
    reasons = reasons_in(said)
    names = [*CLOUDS, *sorted(enabled - set(CLOUDS))]
    clouds = [
        _cloud(name, name in enabled, reasons.get(name), found.get(name, ())) for name in names
    ]
    return SkyCheck(
        gpuplan_version=VERSION,
        skypilot_version=version,
        problem=None if enabled else "no cloud can be rented from yet",
        fix=None if enabled else "do for one cloud what stands below it, then try again.",
        clouds=tuple(sorted(clouds, key=lambda cloud: not cloud.enabled)),
    )


def reasons_in(said: str) -> dict[str, str]:
    """Return why each cloud is disabled, by what `sky check` wrote."""
    reasons: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in ANSI.sub("", said).splitlines():
        if cloud := CLOUD_LINE.match(line):
            current = reasons.setdefault(cloud[1], []) if cloud[2] == "disabled" else None
        elif current is not None:
            reason = REASON_LINE.match(line)
            current.append(reason[1] if reason else line)
    return {name: "\n".join(lines) for name, lines in reasons.items()}


def _cloud(name: str, enabled: bool, reason: str | None, found: tuple[str, ...]) -> CloudCheck:
    if enabled:
        return CloudCheck(cloud=name, enabled=True, credentials=found)
    facts = CLOUDS[name]
    steps = []
    if package := APT_LINE.search(reason or ""):
        steps.append(package[1])
    elif MISSING_TOOLS.search(reason or ""):
        steps.append(f'pip install "skypilot[{facts.extra}]"')
    if not steps or not found:
        steps.append(facts.login)
    return CloudCheck(
        cloud=name,
        enabled=False,
        why=_short(_without_steps(reason)) if reason else "SkyPilot does not say",
        fix=", then ".join(steps),
        credentials=found,
    )


def _unasked(
    version: str | None, found: Mapping[str, tuple[str, ...]], *, problem: str, fix: str
) -> SkyCheck:
    """Return what can be said without SkyPilot: which keys lie here."""
    clouds = [
        CloudCheck(cloud=name, enabled=False, credentials=files)
        for name, files in found.items()
        if files
    ]
    return SkyCheck(
        gpuplan_version=VERSION,
        skypilot_version=version,
        problem=problem,
        fix=fix,
        clouds=tuple(clouds),
    )


def _without_steps(reason: str) -> str:
    """Return what is wrong, without what SkyPilot says to do: `fix` says it in a line."""
    first, _, rest = reason.partition("\n")
    if first.startswith("Traceback"):
        return reason
    details = [line for line in rest.splitlines() if line.strip().startswith("Details:")]
    return "\n".join([STEPS.split(first)[0] or first, *details])


def _short(text: str) -> str:
    """Return the beginning of what is said, on one line; of a traceback its end."""
    lines: Iterable[str] = [line.strip() for line in redacted(text).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("^")]
    if lines and lines[0].startswith("Traceback"):
        lines = lines[-1:]
    joined = " ".join(lines)
    return joined if len(joined) <= LONGEST_WHY else f"{joined[:LONGEST_WHY].rstrip()} …"
