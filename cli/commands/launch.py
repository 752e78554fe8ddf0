"""`gpuplan launch`: run a plan on rented machines, from the confirmation to the final cost."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ...catalog.errors import UsageError
from ..options.launch import launch_options, limits_of, refuse_contradictions, request_of
from ..options.shared import GroupedCommand, output_options
from ..terminal.output import is_terminal

if TYPE_CHECKING:
    from ...launcher.lifecycle.transitions import LaunchContext
    from ...launcher.prepare.prepare import Prepared
    from ...launcher.prepare.request import LaunchRequest
    from ...launcher.store.launch_record import LaunchRecord

FORMATS = ("yaml", "json")


@click.command("launch", cls=GroupedCommand)
@click.argument("plan_id", metavar="[PLAN-ID|FILE]", required=False)
@launch_options
@output_options(*FORMATS)
def command(plan_id: str | None, **options: Any) -> int:
    """Run a plan on machines that SkyPilot rents (docs/launching.md).

    PLAN-ID is as `gpuplan plans` prints it, or a plan's file; without it, the cheapest plan of the
    last estimate made in this folder. The worst-case cost is shown, and you are asked, before
    anything is rented. Ctrl-C leaves the job running: `gpuplan status`, `logs`, `stop` and `down`
    find it again.

    \b
    Examples:
      gpuplan launch --provider aws --outputs s3://bucket/runs --dryrun
      gpuplan launch 24d0a27b1e --spot --max-cost 400 --outputs s3://bucket/runs
      gpuplan launch 24d0a27b1e --fetch results --command "train.py --lr 3e-4"

    Exit codes: 0 it trained all its steps, 1 it failed, 3 no capacity, 4 a limit or its guard
    ended it, 130 Ctrl-C: it still runs.
    """  # noqa: D301
    from ... import api
    from ..options.launches import make_context

    refuse_contradictions(options)
    request = request_of(options)
    if options["dryrun"]:
        prepared = _prepared(plan_id, request, options)
        _show(prepared, options)
        _write(prepared, options)
        return 0
    tried: list[Prepared] = []
    while True:
        prepared = _prepared(plan_id, request, options)
        tried.append(prepared)
        context = make_context(quiet=options["quiet"])
        context.engine.ready()
        prepared = api.launches.priced(prepared)
        _show(prepared, options)
        other = _launch(context, prepared, tried, request, options)
        if not isinstance(other, str):
            return other
        plan_id = other
        click.echo(f"Trying plan {other}, the next best.", err=True)


def _prepared(plan_id: str | None, request: LaunchRequest, options: dict[str, Any]) -> Prepared:
    from ... import api
    from ...profiles.user_model.spec import parse_params

    return api.launch(
        plan_id,
        request,
        model=options["model"],
        params=parse_params(options["params"]),
        workdir=options["workdir"],
        owner=options["owner"],
        project_name=options["project"],
        replan=options["replan"],
    )


def _launch(
    context: LaunchContext,
    prepared: Prepared,
    tried: list[Prepared],
    request: LaunchRequest,
    options: dict[str, Any],
) -> int | str:
    """Rent the machines and follow the job; return the exit code, or the plan to try next."""
    from ... import api
    from ...launcher.lifecycle.engine import NoCapacityError
    from ..options.launches import left_running, outcome_code, say_closing

    _confirm(prepared, options)
    try:
        record = api.launches.start(context, prepared, limits_of(options))
    except NoCapacityError as error:
        other = api.next_plan(tried, request)
        if other is None:
            raise
        if options["any_plan"]:
            return other.id
        offer = other.offer
        raise NoCapacityError(
            error.message,
            fix=f"take the next-best plan, {other.id} ({offer.provider} {offer.region}"
            f" {offer.instance_type}), with `gpuplan launch {other.id} …` or --any-plan.",
        ) from None
    except KeyboardInterrupt:
        return left_running(context, prepared.run_id)
    if options["detach"]:
        click.echo(
            f"Launched {record.run}; follow it with `gpuplan logs -f {record.run}`.", err=True
        )
        _write_record(record, options)
        return 0
    try:
        record = api.launches.follow(context, record.run)
        record = _ask_on_projection(context, record, options)
    except KeyboardInterrupt:
        return left_running(context, record.run)
    say_closing(context, record)
    _write_record(record, options)
    return outcome_code(record)


def _confirm(prepared: Prepared, options: dict[str, Any]) -> None:
    """Ask before money is spent.

    Raises:
        UsageError: there is no terminal to ask on.
        click.Abort: the answer is no.
    """
    if options["yes"]:
        return
    if not is_terminal(sys.stdin):
        raise UsageError(
            "Renting machines needs your confirmation, and there is no terminal to ask on.",
            fix="give -y to rent without asking, or --dryrun to see the task only.",
        )
    if options["quiet"]:
        _say_money(prepared)
    click.confirm("Rent these machines?", abort=True, err=True)


def _ask_on_projection(
    context: LaunchContext, record: LaunchRecord, options: dict[str, Any]
) -> LaunchRecord:
    """Ask, at a terminal, whether to continue a run that the guard ended for its projection."""
    from ... import api
    from ..options.launches import is_projection

    is_asked = options["on_projection"] == "ask" and is_terminal(sys.stdin) and not options["yes"]
    if not (is_asked and is_projection(record)):
        return record
    click.echo(f"{record.run} was stopped: {record.why}", err=True)
    if not click.confirm("Continue from its checkpoint anyway?", err=True):
        return record
    changed = {"action": "continue"}
    again = api.launches.context(
        engine=context.engine, tell=context.tell, log=context.log, changes=changed
    )
    api.launches.resume(again, record.run, limits_of(options), changes=changed)
    return api.launches.follow(again, record.run)


def _show(prepared: Prepared, options: dict[str, Any]) -> None:
    if not options["quiet"]:
        _say_money(prepared)


def _write(prepared: Prepared, options: dict[str, Any]) -> None:
    from ..terminal.output import chosen_format, write_output

    out_file = options["out_file"]
    if chosen_format(options["form"], out_file, FORMATS) == "json":
        text = prepared.answer().model_dump_json(indent=2) + "\n"
    else:
        text = prepared.task.yaml
    write_output(text, out_file)


def _write_record(record: LaunchRecord, options: dict[str, Any]) -> None:
    from ..terminal.output import write_output

    if options["form"] == "json":
        write_output(record.model_dump_json(indent=2) + "\n")


def _say_money(prepared: Prepared) -> None:
    from ..render.launch import render_launch
    from ..render.text.columns import to_text

    click.echo(to_text(render_launch(prepared), colour=False), err=True, nl=False)
