"""The request of `gpuplan launch`: every option is checked before anything is built.

The value of a secret is never accepted: an error says so, and does not repeat the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

from ...catalog.errors import UsageError, did_you_mean
from ...catalog.vocabulary import Purchase
from ...planner.plan.plan import Plan
from ..redaction import KEY_SHAPES
from ..runner.training_options import TrainingOptions
from ..skypilot.user_settings import AwsSettings

BUCKET_PARTS = {"cos": 2, "https": 2}
"""Parts of an address up to the bucket, where a region or an account is before it; elsewhere 1."""
STORES = ("s3", "gs", "r2", "https", "oci", "nebius", "cos", "hf")
"""Schemes of buckets that SkyPilot 0.14 mounts; `https` is Azure's."""
OUTPUTS = "/outputs"
"""Where the bucket of results is mounted on every node."""
OWN_FOLDERS = ("tmp", "proc", "sys", "dev", "run", "outputs")
"""Below the root of a node; the last is where a bucket would be."""
BUCKET = re.compile(r"([a-z0-9]+)://[A-Za-z0-9][A-Za-z0-9._/-]*[A-Za-z0-9_]")
TARGET = re.compile(r"/[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
SECRET_WORDS = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|(API|ACCESS|PRIVATE)_?KEY", re.I
)


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A bucket, or a part of one, as a folder of every node."""

    source: str
    target: str
    mode: Literal["MOUNT", "MOUNT_CACHED"]
    """Read as it is needed, or written through a cache on the node's disk (renames work)."""

    @property
    def bucket(self) -> str:
        """Return the whole bucket; SkyPilot mounts a folder by its address from `hf` alone.

        >>> Mount(source="s3://texts/train/en", target="/data", mode="MOUNT").bucket
        's3://texts'
        """
        scheme, _, rest = self.source.partition("://")
        if scheme == "hf":
            return self.source
        parts = rest.split("/")[: BUCKET_PARTS.get(scheme, 1)]
        return f"{scheme}://{'/'.join(parts)}"

    @property
    def folder(self) -> str:
        """Return the folder in the bucket; empty where the whole bucket is meant.

        >>> Mount(source="cos://eu-de/texts/train", target="/data", mode="MOUNT").folder
        'train'
        """
        return self.source[len(self.bucket) :].strip("/")


@dataclass(frozen=True, kw_only=True)
class GuardRequest:
    """What stops a run before its last step; None holds nothing."""

    max_cost_usd: Decimal | None = None
    """Limit on the cost of all attempts together, until the machines are torn down."""
    max_cost_source: str = "--max-cost"
    """Who set it, in words."""
    max_hours: float | None = None
    max_hourly_cost_usd: Decimal | None = None
    """Highest price an hour of all nodes; checked before anything is rented."""
    min_gpu_utilization: float | None = None
    """Lowest busy fraction, averaged over the devices of a node."""
    idle_for_s: float = 900.0
    """How long the devices may be less busy than that."""
    on_projection: Literal["ask", "stop", "continue"] = "ask"
    """What is done when the first steps show that the run will cost more than predicted."""
    smoke: bool = False
    """Run only the steps that the projection needs, then go."""


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """How a plan is to be launched; None leaves it to the plan."""

    providers: tuple[str, ...] = ()
    """Providers among which the cheapest plan is taken, where no plan is named."""
    spot: bool | None = None
    infra: str | None = None
    """A cluster of the user's own, whatever the plan's provider: `k8s/context`."""
    regions: tuple[str, ...] = ()
    """Regions, in the order in which they are tried."""
    zones: tuple[str, ...] = ()
    steps: int | None = None
    guard: GuardRequest = GuardRequest()
    deadline: datetime | None = None
    """When results must be there, with its time zone."""
    deadline_source: str = "--deadline"
    """Who set it, in words."""
    data: tuple[Mount, ...] = ()
    outputs: Mount | None = None
    shared: str | None = None
    """A folder that all nodes share already, where results go instead of to a bucket."""
    fetch: str | None = None
    """A local folder to which results are fetched before the machines go."""
    image: str | None = None
    """`docker:…`, or a machine image of the cloud."""
    disk_gb: int | None = None
    checkpoint_every_steps: int | None = None
    checkpoint_every_s: float | None = None
    """How often gpuplan's runner writes a checkpoint, in steps or in seconds; where both are None,
    the runner's own interval holds."""
    autodown_minutes: int | None = None
    """Idle time after the job until autodown, where no command tears the machines down."""
    synthetic: bool = False
    """Whether gpuplan's runner trains on synthetic batches, data set or none."""
    training: TrainingOptions = TrainingOptions()
    """What gpuplan's runner is asked beside the plan."""
    setup: str | None = None
    """Shell lines that make the environment, instead of the project's own files."""
    environment: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    """Names of variables whose values SkyPilot takes from the user's own environment."""
    command: str | None = None
    framework: str | None = None
    public_ips: bool = False
    """Whether machines get public addresses, where that leaves them one network interface."""
    aws: AwsSettings = AwsSettings()
    """Of the user's SkyPilot."""
    has_controller: bool = True
    """Whether SkyPilot runs managed jobs from a machine that is paid for, not from its server."""

    def bought(self, plan: Plan) -> Purchase:
        """Return how the machines are bought: as planned, or as the request has it."""
        if self.spot is None or self.spot == (plan.offer.purchase == "spot"):
            return plan.offer.purchase
        return "spot" if self.spot else "on-demand"

    def buys_spot(self, plan: Plan) -> bool:
        """Return whether spot machines are asked for, or planned with where nothing is asked."""
        return plan.offer.purchase == "spot" if self.spot is None else self.spot


def parse_data(text: str) -> Mount:
    """Return the mount that `--data s3://bucket/folder:/data` asks for.

    Raises:
        UsageError: it is not of that form, or holds a key.
    """
    source, colon, target = text.rpartition(":")
    if not colon or not target.startswith("/") or target.startswith("//"):
        raise UsageError(
            f"--data {_without_keys(text)} does not say where the bucket goes.",
            fix="write --data s3://bucket/folder:/data.",
        )
    source = _bucket(source, "--data")
    if not TARGET.fullmatch(target) or ".." in target.split("/"):
        raise UsageError(
            f"--data puts a bucket at {target!r}, which is no plain path.",
            fix="write an absolute path of letters, digits, '.', '_' and '-': /data.",
        )
    if target == OUTPUTS or target.startswith(f"{OUTPUTS}/"):
        raise UsageError(
            f"{OUTPUTS} is where results go.", fix="put the data elsewhere, as --data …:/data."
        )
    return Mount(source=source, target=target, mode="MOUNT")


def parse_outputs(text: str) -> Mount:
    """Return the mount for checkpoints and results that `--outputs s3://bucket/folder` asks for.

    Raises:
        UsageError: it is no bucket, or holds a key.
    """
    return Mount(source=_bucket(text, "--outputs"), target=OUTPUTS, mode="MOUNT_CACHED")


def parse_shared(text: str) -> str:
    """Return the folder of results that every node shares already, `--shared /mnt/nfs/runs`.

    Raises:
        UsageError: it is no plain absolute path, or one that a node has for itself.
    """
    folder = text.rstrip("/")
    if not TARGET.fullmatch(folder) or ".." in folder.split("/"):
        raise UsageError(
            f"--shared {text!r} is no plain absolute path.",
            fix="write the path of a folder that every node has, of letters, digits, '.', '_' and"
            " '-': /mnt/nfs/runs.",
        )
    if folder.split("/")[1] in OWN_FOLDERS:
        raise UsageError(
            f"--shared {folder} would be a folder of each node alone.",
            fix="name one that all nodes share, such as a disk on the network.",
        )
    return folder


def parse_secret(text: str) -> str:
    """Return the name of a variable that holds a secret.

    Raises:
        UsageError: a value was given too (it is not repeated), or it is no name.
    """
    name, equals, _ = text.partition("=")
    if equals:
        raise UsageError(
            f"--secret {_shown_name(name)} was given with its value; only names are taken.",
            fix="set the variable in your shell, and give --secret with the name alone."
            " The value may now be in your shell's history.",
        )
    if not VARIABLE.fullmatch(name):
        raise UsageError(
            "--secret takes the name of a variable, which this is not.",
            fix="write --secret HF_TOKEN, with HF_TOKEN set in your shell.",
        )
    return name


def parse_variable(text: str) -> tuple[str, str]:
    """Return the name and value of `--env KEY=VALUE`.

    Raises:
        UsageError: it is not of that form, or its name is that of a secret.
    """
    name, equals, value = text.partition("=")
    if not equals or not VARIABLE.fullmatch(name) or "\0" in value:
        raise UsageError(
            f"--env {_shown_name(name)} is not of the form KEY=VALUE.",
            fix="write for example --env NCCL_DEBUG=WARN.",
        )
    if SECRET_WORDS.search(name):
        raise UsageError(
            f"--env {name} looks like a secret, and the task's file would hold its value.",
            fix=f"set {name} in your shell and give --secret {name}.",
        )
    refuse_keys(value, f"--env {name}")
    if name.startswith("SKYPILOT_"):
        raise UsageError(f"--env {name} is SkyPilot's own.", fix="take another name.")
    return name, value


def refuse_keys(text: str, option: str) -> None:
    """Refuse a text that holds what looks like a key, since the task's file would hold it too.

    Raises:
        UsageError: it does; the key is not repeated.
    """
    if KEY_SHAPES.search(text):
        raise UsageError(
            f"{option} holds what looks like a secret key, and the task's file would hold it too.",
            fix="put it in a variable of your shell, read that in your script, and give --secret"
            " with its name.",
        )


def parse_image(text: str) -> str:
    """Return an image: `docker:nvcr.io/nvidia/pytorch:26.05-py3`, or the cloud's own id of one.

    Raises:
        UsageError: it has characters that no image's name has.
    """
    if not IMAGE.fullmatch(text):
        raise UsageError(
            f"--image {text!r} is not the name of an image.",
            fix="write docker:REGISTRY/NAME:TAG, or the id that the cloud gives a machine image.",
        )
    return text


def refuse_repeats(mounts: Iterable[Mount]) -> None:
    """Refuse two buckets in one place.

    Raises:
        UsageError: a path is given twice.
    """
    seen: dict[str, str] = {}
    for mount in mounts:
        if mount.target in seen:
            raise UsageError(
                f"{seen[mount.target]} and {mount.source} are both put at {mount.target}.",
                fix="give each its own path.",
            )
        seen[mount.target] = mount.source


def _bucket(text: str, option: str) -> str:
    source = text.rstrip("/")
    scheme, separator, rest = source.partition("://")
    if not separator:
        raise UsageError(
            f"{option} {_without_keys(text)} is no bucket.",
            fix=f"write {option} s3://bucket/folder (or gs://, r2://, …).",
        )
    if scheme not in STORES:
        raise UsageError(
            f"{option}: there is no kind of bucket {scheme!r}.{did_you_mean(scheme, STORES)}",
            fix=f"take one of {', '.join(STORES)}.",
        )
    if set(rest) & set("@?#"):
        raise UsageError(
            f"{option} holds more than the name of a bucket; keys do not belong there.",
            fix=f"write {scheme}://bucket/folder; SkyPilot uses the cloud's own credentials.",
        )
    if not BUCKET.fullmatch(source) or ".." in source:
        raise UsageError(
            f"{option} {text!r} is not the name of a bucket.",
            fix=f"write {scheme}://bucket/folder in letters, digits, '.', '_' and '-'.",
        )
    return source


def _shown_name(name: str) -> str:
    return name if VARIABLE.fullmatch(name) else "…"


def _without_keys(text: str) -> str:
    """Return a text to show, unless it may hold a key."""
    return "…" if re.search(r"[@?#=]", text) else repr(text)
