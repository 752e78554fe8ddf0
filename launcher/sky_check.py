"""`gpuplan check`: which clouds can be rented from here, why not the others, and what to do.

SkyPilot asks each cloud with the person's own keys (`sky check`); gpuplan reads none of them. What
a cloud's tools say may hold a key, so nothing of it is passed on before `redacted`.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Literal, Protocol

from .. import __version__
from ..planner.plan import Answer
from .request import KEY_SHAPES
from .sky_home import enter

SCHEMA_VERSION: Literal["1.0"] = "1.0"
COMPUTE = "compute"
"""The ability to rent machines, as SkyPilot names it; the other one is storage."""
LONGEST_WHY = 300
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
CLOUD_LINE = re.compile(r"^ {2}(\S[^:]*): (enabled|disabled)\b")
REASON_LINE = re.compile(r"^\s+(?:Reason|Hint) \[[^\]]*\]: (.*)")
NAMED_SECRET = re.compile(
    r"(?i)((?:key|token|secret|password|passwd|credential|authorization)[\w-]*[\"']?\s*[:=]\s*)"
    r"(?:bearer\s+)?[\"']?[^\s\"',;]+"
)
IN_URL = re.compile(r"(://)[^/\s@]+@")
LONG_WORD = re.compile(r"[A-Za-z0-9+/=_-]{20,}")
REMOVED = "(removed)"
INSTALL = 'pip install "gpuplan[sky]"'


@dataclass(frozen=True, kw_only=True)
class CloudFacts:
    """What gpuplan itself knows of a cloud: how it is logged in to, and where that is kept."""

    extra: str
    """Of the package `skypilot`."""
    login: str
    files: tuple[str, ...] = ()
    """Below the person's home."""
    variables: tuple[str, ...] = ()


CLOUDS: Mapping[str, CloudFacts] = {
    "AWS": CloudFacts(
        extra="aws",
        login="aws configure",
        files=(".aws/credentials", ".aws/config"),
        variables=("AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
    ),
    "GCP": CloudFacts(
        extra="gcp",
        login="gcloud init; gcloud auth application-default login",
        files=(".config/gcloud/application_default_credentials.json",),
        variables=("GOOGLE_APPLICATION_CREDENTIALS",),
    ),
    "Azure": CloudFacts(
        extra="azure",
        login="az login",
        files=(".azure/msal_token_cache.json",),
        variables=("AZURE_CLIENT_ID",),
    ),
    "Lambda": CloudFacts(
        extra="lambda",
        login="put your key into ~/.lambda_cloud/lambda_keys",
        files=(".lambda_cloud/lambda_keys",),
    ),
    "RunPod": CloudFacts(extra="runpod", login="runpod config", files=(".runpod/config.toml",)),
    "Nebius": CloudFacts(
        extra="nebius",
        login="nebius iam get-access-token > ~/.nebius/NEBIUS_IAM_TOKEN.txt",
        files=(".nebius/NEBIUS_IAM_TOKEN.txt", ".nebius/credentials.json"),
    ),
    "OCI": CloudFacts(extra="oci", login="oci setup config", files=(".oci/config",)),
    "DO": CloudFacts(extra="do", login="doctl auth init", files=(".config/doctl/config.yaml",)),
    "Vast": CloudFacts(
        extra="vast",
        login="put your key into ~/.config/vastai/vast_api_key",
        files=(".config/vastai/vast_api_key",),
    ),
    "Verda": CloudFacts(
        extra="verda",
        login="put your key into ~/.verda/config.json",
        files=(".verda/config.json",),
    ),
    "Kubernetes": CloudFacts(
        extra="kubernetes",
        login="bring the cluster's settings into ~/.kube/config",
        files=(".kube/config",),
        variables=("KUBECONFIG",),
    ),
    "Slurm": CloudFacts(
        extra="slurm", login="name the cluster in ~/.slurm/config", files=(".slurm/config",)
    ),
    "SSH": CloudFacts(
        extra="ssh",
        login="name the machines in ~/.sky/ssh_node_pools.yaml, then `sky ssh up`",
        files=(".sky/ssh_node_pools.yaml",),
    ),
}
"""By SkyPilot's names; the sellers in gpuplan's catalogue, and clusters of one's own."""


class CloudCheck(Answer):
    """Whether machines can be rented from one cloud."""

    cloud: str
    enabled: bool
    why: str | None = None
    """Why not, as SkyPilot says it, without what looks like a key."""
    fix: str | None = None
    credentials: tuple[str, ...] = ()
    """Names of the files and variables that were found; never what they hold."""


class SkyCheck(Answer):
    """What `gpuplan check` found."""

    schema_version: Literal["1.0"] = SCHEMA_VERSION
    gpuplan_version: str
    skypilot_version: str | None
    """None: it is not installed."""
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
    """The real one, with the server that the person uses."""

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
    found = _credentials(home or Path.home(), os.environ if environment is None else environment)
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
        gpuplan_version=__version__,
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


def redacted(text: str) -> str:
    """Return a text without what looks like a key, a token or a password.

    >>> redacted("bad key AKIAABCDEFGHIJKLMNOP, token=abc, https://me:pw@host/")
    'bad key (removed), token=(removed), https://(removed)@host/'
    """
    text = KEY_SHAPES.sub(REMOVED, text)
    text = IN_URL.sub(rf"\1{REMOVED}@", text)
    text = NAMED_SECRET.sub(rf"\1{REMOVED}", text)
    return LONG_WORD.sub(lambda word: REMOVED if _is_random(word[0]) else word[0], text)


def _is_random(word: str) -> bool:
    """Whether a long word mixes letters of both cases and digits, as keys do and names do not."""
    return (
        any(letter.isdigit() for letter in word)
        and any(letter.isupper() for letter in word)
        and any(letter.islower() for letter in word)
    )


def _cloud(name: str, enabled: bool, reason: str | None, found: tuple[str, ...]) -> CloudCheck:
    if enabled:
        return CloudCheck(cloud=name, enabled=True, credentials=found)
    facts = CLOUDS[name]
    missing_tools = reason is not None and re.search(
        r"not installed|pip install|No module named|import dependencies", reason
    )
    install = f'pip install "skypilot[{facts.extra}]"'
    steps = [install] if missing_tools else []
    if not missing_tools or not found:
        steps.append(facts.login)
    return CloudCheck(
        cloud=name,
        enabled=False,
        why=_short(reason) if reason else "SkyPilot does not say",
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
        gpuplan_version=__version__,
        skypilot_version=version,
        problem=problem,
        fix=fix,
        clouds=tuple(clouds),
    )


def _credentials(home: Path, environment: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return, for each cloud, the names of the files and variables with keys that are here."""
    return {
        cloud: (
            *(f"~/{name}" for name in facts.files if (home / name).is_file()),
            *(f"${name}" for name in facts.variables if environment.get(name)),
        )
        for cloud, facts in CLOUDS.items()
    }


def _short(text: str) -> str:
    """Return the beginning of what is said, on one line; of a traceback its end."""
    lines: Iterable[str] = [line.strip() for line in redacted(text).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("^")]
    if lines and lines[0].startswith("Traceback"):
        lines = lines[-1:]
    joined = " ".join(lines)
    return joined if len(joined) <= LONGEST_WHY else f"{joined[:LONGEST_WHY].rstrip()} …"
