"""What the options of `gpuplan launch` hold, and the request that they make."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...catalog.errors import UsageError
from .groups import OutputOptions
from .training import TrainingValues, refuse_beside_script

if TYPE_CHECKING:
    from ...launcher.prepare.request import LaunchRequest
    from ...launcher.store.spending_limits import SpendingLimits

ActionOnProjection = Literal["ask", "stop", "continue"]


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """What the options of `LIMITS` hold: US dollars, None where there is no limit."""

    project_limit: Decimal | None
    owner_limit: Decimal | None
    month_limit: Decimal | None


@dataclass(frozen=True, kw_only=True)
class LaunchOptions(LimitOptions, TrainingValues, OutputOptions):
    """What the options of `gpuplan launch` hold."""

    model: str | None
    params: tuple[str, ...]
    steps: int | None
    replan: bool
    pricebook: Path | None
    provider: tuple[str, ...]
    region: tuple[str, ...]
    zone: tuple[str, ...]
    infra: str | None
    check_capacity: bool | None
    """None: where machines are rented."""
    image: str | None
    public_ips: bool
    disk_size: int | None
    """GB."""
    data: tuple[str, ...]
    outputs: str | None
    shared: str | None
    fetch: str | None
    workdir: Path | None
    setup: str | None
    variables: tuple[str, ...]
    """As typed: `KEY=VALUE`."""
    secrets: tuple[str, ...]
    """Names alone."""
    project: str | None
    """A name, or a project's file."""
    owner: str | None
    checkpoint_every: tuple[int | None, float | None] | None
    """Steps, or seconds."""
    synthetic: bool
    autodown: int | None
    """Minutes."""
    script: str | None
    framework: str | None
    spot: bool | None
    max_cost: Decimal | None
    """US dollars."""
    max_hours: float | None
    max_hourly_cost: Decimal | None
    """US dollars an hour."""
    deadline: float | None
    """Seconds from now."""
    min_gpu_utilization: float | None
    """A fraction."""
    idle_for: float
    """Seconds."""
    on_projection: ActionOnProjection
    smoke: bool
    dryrun: bool
    yes: bool
    detach: bool
    any_plan: bool


def limits_of(options: LimitOptions) -> SpendingLimits:
    """Return the limits on spending."""
    from ...launcher.store.spending_limits import SpendingLimits

    return SpendingLimits(
        project_usd=options.project_limit,
        owner_usd=options.owner_limit,
        month_usd=options.month_limit,
    )


def refuse_contradictions(options: LaunchOptions) -> None:
    """Refuse options that say two things.

    Raises:
        UsageError: they do.
    """
    if options.framework is not None and options.script is None:
        raise UsageError(
            f"--framework {options.framework} is for a script of your own.",
            fix='give the script with --command "train.py --flags", or leave --framework out.',
        )
    if options.script is not None and options.checkpoint_every is not None:
        raise UsageError(
            "--checkpoint-every is for gpuplan's own runner.",
            fix="leave it out, and let your script write its checkpoints.",
        )
    if options.script is not None:
        refuse_beside_script(options)
    if options.infra is not None and (options.region or options.zone):
        raise UsageError("--infra is given with --region or --zone.", fix="name the place once.")
    if options.params and options.model is None:
        raise UsageError(
            "--param is given without --model; a kept plan knows its params.",
            fix="leave --param out, or estimate with these params.",
        )
    if options.out_file is not None and not options.dryrun:
        raise UsageError(
            "--out-file is for --dryrun.", fix="add --dryrun, or leave --out-file out."
        )


def request_of(options: LaunchOptions) -> LaunchRequest:
    """Return the request.

    Raises:
        UsageError: a text is not of the form that its option takes.
    """
    from ...launcher.prepare.request import (
        GuardRequest,
        LaunchRequest,
        parse_data,
        parse_image,
        parse_outputs,
        parse_secret,
        parse_shared,
        parse_variable,
    )

    fetch, outputs, shared = options.fetch, options.outputs, options.shared
    deadline_s = options.deadline
    every_steps, every_s = options.checkpoint_every or (None, None)
    return LaunchRequest(
        providers=options.provider,
        spot=options.spot,
        infra=options.infra,
        regions=options.region,
        zones=options.zone,
        steps=options.steps,
        guard=GuardRequest(
            max_cost_usd=options.max_cost,
            max_hours=options.max_hours,
            max_hourly_cost_usd=options.max_hourly_cost,
            min_gpu_utilization=options.min_gpu_utilization,
            idle_for_s=options.idle_for,
            on_projection=options.on_projection,
            smoke=options.smoke,
        ),
        deadline=None if deadline_s is None else datetime.now(UTC) + timedelta(seconds=deadline_s),
        data=tuple(parse_data(text) for text in options.data),
        outputs=None if outputs is None else parse_outputs(outputs),
        shared=None if shared is None else parse_shared(shared),
        fetch=None if fetch is None else str(Path(fetch).expanduser().absolute()),
        image=None if options.image is None else parse_image(options.image),
        public_ips=options.public_ips,
        disk_gb=options.disk_size,
        checkpoint_every_steps=every_steps,
        checkpoint_every_s=every_s,
        autodown_minutes=options.autodown,
        synthetic=options.synthetic,
        training=options.training(),
        setup=options.setup,
        environment=tuple(parse_variable(text) for text in options.variables),
        secrets=tuple(parse_secret(text) for text in options.secrets),
        command=options.script,
        framework=options.framework,
    )
