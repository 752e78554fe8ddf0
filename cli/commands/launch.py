"""`gpuplan launch`: run a plan on rented machines, from the confirmation to the final cost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..options.launch import launch_options
from ..options.launch_values import LaunchOptions, limits_of, refuse_contradictions, request_of
from ..options.launches import detached_alone
from ..options.shared import TYPED, GroupedCommand, output_options
from ..terminal.output import is_terminal

if TYPE_CHECKING:
    from ...launcher.lifecycle.context import LaunchContext
    from ...launcher.prepare.missing import MissingError
    from ...launcher.prepare.prepare import Later
    from ...launcher.prepare.prepared import Prepared
    from ...launcher.prepare.request import LaunchRequest
    from ...launcher.skypilot.placement import Place
    from ...launcher.store.launch_record import LaunchRecord
    from ...planner.plan.plan import Plan

FORMATS = ("yaml", "json")


@click.command("launch", cls=GroupedCommand)
@click.argument("plan_id", metavar="[PLAN-ID|FILE]", required=False)
@launch_options
@output_options(*FORMATS)
def command(plan_id: str | None, **options: Any) -> int:
    """Run a plan on machines that SkyPilot rents (docs/launching.md).

    PLAN-ID is as `gpuplan plans` prints it, or a plan's file; without it, the recommended plan of
    the last estimate made in this folder, else the cheapest that surely fits. The worst-case cost
    is shown, and you are asked, before anything is rented. Ctrl-C leaves the job running:
    `gpuplan status`, `logs`, `stop` and `down` find it again.

    \b
    Examples:
      gpuplan launch --provider aws --outputs s3://bucket/runs --dryrun
      gpuplan launch 24d0a27b1e --spot --max-cost 400 --outputs s3://bucket/runs
      gpuplan launch 24d0a27b1e --project study/gpuplan.yaml --outputs s3://bucket/runs
      gpuplan launch 24d0a27b1e --fetch results --command "train.py --lr 3e-4"

    Exit codes: 0 it trained all its steps, 1 it failed, 3 no capacity, 4 a limit or its guard
    ended it, 130 Ctrl-C: it still runs.
    """  # noqa: D301
    asked = LaunchOptions(**options)
    refuse_contradictions(asked)
    request = request_of(asked)
    prepared = _prepared_or_ready_line(plan_id, request, asked)
    if asked.dryrun:
        _show(prepared, asked)
        _write(prepared, asked)
        return 0
    return _launch(prepared, request, asked)


def _prepared_or_ready_line(
    plan_id: str | None, request: LaunchRequest, asked: LaunchOptions
) -> Prepared:
    """Return the launch; where something is missing, the error ends in a line that can be pasted.

    Raises:
        MissingError: something is.
    """
    from ...launcher.prepare.missing import MissingError

    try:
        prepared = _prepared(plan_id, request, asked)
        unasked = [] if asked.dryrun else [lambda: _refuse_unasked(asked)]
        _check_capacity(prepared, asked, later=unasked)
    except MissingError as error:
        raise _with_line(error) from None
    _refuse_unattended(prepared, asked)
    return prepared


def _refuse_unattended(prepared: Prepared, asked: LaunchOptions) -> None:
    """Refuse --detach where nothing but this command ends the machines.

    Raises:
        UsageError: it is given there.
    """
    if asked.detach and prepared.idle_minutes is None:
        raise detached_alone(prepared.places[0].cloud, prepared.cost.usd_per_hour)


def _with_line(error: MissingError) -> MissingError:
    words = click.get_current_context().meta[TYPED]
    return error.with_line(("gpuplan", "launch", *words))


def _prepared(plan_id: str | None, request: LaunchRequest, asked: LaunchOptions) -> Prepared:
    from ... import api
    from ...profiles.user_model.spec import parse_params
    from ..options.launches import make_context

    file, name = _project(asked.project)
    return api.launch(
        plan_id,
        request,
        model=asked.model,
        params=parse_params(asked.params),
        workdir=asked.workdir,
        owner=asked.owner,
        project_name=name,
        project_file=file,
        pricebook=asked.pricebook,
        replan=asked.replan,
        engine=None if asked.dryrun else make_context(quiet=True).engine,
        later=_told_later(asked),
    )


def _told_later(asked: LaunchOptions) -> list[Later]:
    """Return what is refused after the launch is prepared, to be listed with what it lacks."""
    from ...api.account.startable import refuse_no_place
    from ..terminal.progress import counted_progress

    def can_start(plan: Plan, request: LaunchRequest, places: Sequence[Place]) -> None:
        with counted_progress("Asking the cloud …", quiet=asked.quiet) as tell:
            refuse_no_place(plan, request, places, on_progress=tell)

    unasked = lambda *_launch: _refuse_unasked(asked)  # noqa: E731
    return [unasked] if asked.check_capacity is False else [can_start, unasked]


def _check_capacity(
    prepared: Prepared, asked: LaunchOptions, *, later: Sequence[Callable[[], object]] = ()
) -> None:
    """Refuse, before any money is spent, what the account cannot start, with what is refused later.

    What is not known is said to one who asked for the look.
    """
    wanted = not asked.dryrun if asked.check_capacity is None else asked.check_capacity
    if not wanted:
        return
    from ... import api
    from ..terminal.progress import counted_progress

    with counted_progress("Asking the cloud …", quiet=asked.quiet) as tell:
        lines = api.refuse_without_capacity(prepared, on_progress=tell, later=later)
    if asked.quiet or not asked.check_capacity:
        return
    if not any(line.startable == "yes" for line in lines):
        reasons = dict.fromkeys(reason for line in lines for reason in line.unknown)
        why = f" ({'; '.join(reasons)})" if reasons else ""
        click.echo(f"Note: whether your account can start it is not known{why}.", err=True)


def _project(given: str | None) -> tuple[str | None, str | None]:
    """Return the project's file that is named, or the name."""
    from ...api.projects.limits import is_project_file
    from ...planner.budget.project.project import PROJECT_FILE
    from ..options.settings import from_settings

    if given is None:
        return None, None
    if is_project_file(given):
        return given, None
    if "project" in from_settings() and Path(PROJECT_FILE).is_file():
        return None, None  # What lies here is nearer than a setting, and its limits hold.
    return None, given


def _launch(prepared: Prepared, request: LaunchRequest, asked: LaunchOptions) -> int:
    """Rent the machines and follow the job; return the exit code."""
    from ... import api
    from ..options.launches import (
        left_running,
        make_context,
        outcome_code,
        say_closing,
        say_unattended,
    )

    context = make_context(quiet=asked.quiet)
    confirmed: list[str] = []

    def confirm(launch: Prepared) -> None:
        _show(launch, asked)
        _confirm(launch, asked)
        confirmed.append(launch.run_id)

    def prepare_next(plan: Plan) -> Prepared:
        click.echo(f"Trying plan {plan.id}, the next best.", err=True)
        following = _prepared(plan.id, request, asked)
        _check_capacity(following, asked)
        _refuse_unattended(following, asked)
        return following

    try:
        record = api.launches.rent(
            context,
            prepared,
            request=request,
            limits=limits_of(asked),
            confirm=confirm,
            prepare_next=prepare_next if asked.any_plan else None,
        )
    except KeyboardInterrupt:
        if not confirmed:
            raise
        return left_running(context, confirmed[-1])
    if asked.detach:
        click.echo(
            f"Launched {record.run}; follow it with `gpuplan logs -f {record.run}`.", err=True
        )
        say_unattended(record)
        _write_record(record, asked)
        return 0
    try:
        record = api.launches.follow(context, record.run)
        record = _ask_on_projection(context, record, asked)
    except KeyboardInterrupt:
        return left_running(context, record.run)
    say_closing(context, record)
    _write_record(record, asked)
    return outcome_code(record)


def _confirm(prepared: Prepared, asked: LaunchOptions) -> None:
    """Ask before money is spent.

    Raises:
        MissingError: there is no terminal to ask on.
        click.Abort: the answer is no.
    """
    from ...launcher.prepare.missing import MissingError

    if asked.yes:
        return
    try:
        _refuse_unasked(asked)
    except MissingError as error:
        raise _with_line(error) from None
    if asked.quiet:
        _say_money(prepared)
    _confirm_upload(prepared)
    click.confirm("Rent these machines?", abort=True, err=True)


def _refuse_unasked(asked: LaunchOptions) -> None:
    """Refuse to rent where nobody can be asked.

    Raises:
        MissingError: there is no terminal to ask on, and no -y.
    """
    from ...launcher.prepare.missing import MissingError

    if not asked.yes and not is_terminal(sys.stdin):
        raise MissingError(
            "Renting machines needs your confirmation, and there is no terminal to ask on.",
            fix="give -y to rent without asking, or --dryrun to see the task and its cost only.",
            options=("-y",),
        )


def _confirm_upload(prepared: Prepared) -> None:
    """Ask whether so much is really to be sent, at each start to every node.

    Raises:
        click.Abort: the answer is no.
    """
    from ...catalog.text.quantity import format_bytes
    from ...launcher.upload import LARGE_BYTES, SKYIGNORE

    upload = prepared.upload
    if upload.size_bytes <= LARGE_BYTES:
        return
    click.echo(
        f"What {upload.root / SKYIGNORE} names stays here; a data set is better put in a bucket,"
        " with --data.",
        err=True,
    )
    size = format_bytes(upload.size_bytes)
    click.confirm(f"Send {size} to every node, at every start?", abort=True, err=True)


def _ask_on_projection(
    context: LaunchContext, record: LaunchRecord, asked: LaunchOptions
) -> LaunchRecord:
    """Ask, at a terminal, whether to continue a run that the guard ended for its projection."""
    from ... import api
    from ..options.launches import is_projection

    may_ask = asked.on_projection == "ask" and is_terminal(sys.stdin) and not asked.yes
    if not (may_ask and is_projection(record)):
        return record
    click.echo(f"{record.run} was stopped: {record.why}", err=True)
    if not click.confirm("Continue from its checkpoint anyway?", err=True):
        return record
    changed = {"action": "continue"}
    again = api.launches.context(
        engine=context.engine, tell=context.tell, log=context.log, changes=changed
    )
    api.launches.resume(again, record.run, limits_of(asked), changes=changed)
    return api.launches.follow(again, record.run)


def _show(prepared: Prepared, asked: LaunchOptions) -> None:
    if not asked.quiet:
        _say_money(prepared)


def _write(prepared: Prepared, asked: LaunchOptions) -> None:
    from ..terminal.output import chosen_format, write_output

    out_file = asked.out_file
    if chosen_format(asked.form, out_file, FORMATS) == "json":
        text = prepared.answer().model_dump_json(indent=2) + "\n"
    else:
        text = prepared.task.yaml
    write_output(text, out_file)


def _write_record(record: LaunchRecord, asked: LaunchOptions) -> None:
    from ..terminal.output import write_output

    if asked.form == "json":
        write_output(record.model_dump_json(indent=2) + "\n")


def _say_money(prepared: Prepared) -> None:
    from ..render.runs.launch import render_launch
    from ..render.text.columns import to_text

    click.echo(to_text(render_launch(prepared), colour=False), err=True, nl=False)
