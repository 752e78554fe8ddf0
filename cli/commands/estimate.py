"""`gpuplan estimate`: what training needs, takes and costs on every accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...catalog.errors import GpuplanError, NoFeasiblePlanError, UsageError
from ...planner.plan.question import Question
from ..options.curves import given_curves
from ..options.estimate import EstimateOptions, estimate_options
from ..options.inputs import read_inputs
from ..options.question import question_of
from ..options.settings import from_settings
from ..options.shared import (
    GroupedCommand,
    model_options,
    output_options,
)
from ..options.values.param_lists import split_params
from ..terminal.output import chosen_format
from ..terminal.progress import counted_progress

if TYPE_CHECKING:
    from ...api import Inputs
    from ...planner.plan.answer.estimate import Estimate
    from ...planner.plan.plan import Plan

FORMATS = ("table", "json", "csv", "markdown")


@click.command("estimate", cls=GroupedCommand)
@model_options
@estimate_options
@output_options(*FORMATS)
def command(model: str, **options: Any) -> int:
    """Say what training MODEL needs, takes and costs on every accelerator, with no GPU.

    MODEL is a file with build_model() and make_batch(batch_size), MODEL.py:ClassName with --input,
    hf:NAME or hf:FOLDER for a Hugging Face config, or a Profile that `gpuplan profile` wrote.

    \b
    Examples:
      gpuplan estimate model.py --tokens 10B
      gpuplan estimate model.py --tokens 10B --param layers=12,24,48
      gpuplan estimate model.py --epochs 90 --dataset-size 1.28M --deadline 3d --provider aws,gcp
      gpuplan estimate model.py --cluster 4xp5.48xlarge --layout fsdp32 --micro-batch 2 --explain 1

    docs/how-to-read-an-answer.md explains every mark and abbreviation. The exit code is 3 when no
    plan is feasible (docs/json.md lists all codes).
    """  # noqa: D301
    from ... import api

    asked = EstimateOptions(**options)
    form = chosen_format(asked.form, asked.out_file, FORMATS)
    _refuse_offline(asked)
    if asked.reprice:
        _reprice(asked)
    _, lists = split_params(asked.params)
    if lists:
        from .param_sweep import run_sweep

        return run_sweep(model, asked, question_of(asked, is_read=True), form=form)
    question = question_of(asked, is_read=form in ("table", "markdown"))
    inputs = read_inputs(
        model,
        asked,
        precisions=question.choices.precisions,
        machine=question.machine,
        curves=given_curves(asked.curves),
        pricebook=asked.pricebook,
    )
    with counted_progress("Comparing machines …", quiet=asked.quiet) as tell:
        answer = api.estimate(inputs, question, on_progress=tell)
        if asked.check_capacity:
            answer = api.by_capacity(answer, on_progress=tell)
    answer = with_settings(answer, from_settings())
    plan = _plan_at(answer, asked.explain or 1)
    if asked.explain and plan is None and answer.plans:
        raise UsageError(
            f"There is no plan {asked.explain}; there are {len(answer.plans)}.",
            fix=f"give --explain a number from 1 to {len(answer.plans)}.",
        )
    # Before it is shown: a reader that closes the pipe early (`| head`) has an id that is known.
    is_kept = _keep(answer, inputs, question, quiet=asked.quiet)
    if asked.pareto and form == "table":
        _draw(inputs, question, answer, asked)
    else:
        _write(model, answer, plan if asked.explain else None, asked, is_kept=is_kept)
    if asked.trace and plan is not None:
        _write_trace(inputs, plan, asked.trace)
    return 0 if answer.plans else NoFeasiblePlanError.exit_code


def _refuse_offline(asked: EstimateOptions) -> None:
    wanted = [name for name in ("reprice", "check_capacity") if getattr(asked, name)]
    if asked.offline and wanted:
        option_name = wanted[0].replace("_", "-")
        raise UsageError(
            f"--offline and --{option_name} contradict each other: the clouds are asked for it.",
            fix="keep one.",
        )


def _reprice(asked: EstimateOptions) -> None:
    """Refresh the prices of the clouds that are asked about; without one, old prices stay."""
    from ... import api
    from ...catalog.clouds.connect import CLOUDS
    from ...catalog.names import resolve_provider

    named = [resolve_provider(name) for name in asked.provider if name != "all"]
    providers = [name for name in named if name in CLOUDS]
    if named and not providers:
        if not asked.quiet:
            click.echo(f"Note: prices of {', '.join(named)} cannot be refreshed.", err=True)
        return
    with counted_progress("Asking for prices …", quiet=asked.quiet) as tell:
        try:
            api.prices.refresh(providers=providers, on_progress=tell)
        except GpuplanError as error:
            click.echo(f"Warning: older prices are used. {error.message}", err=True)


def with_settings(answer: Estimate, names: tuple[str, ...]) -> Estimate:
    """Return the answer whose question says which options were not typed but set."""
    if answer.question is None or not names:
        return answer
    asked = answer.question.model_copy(update={"from_settings": names})
    return answer.model_copy(update={"question": asked})


def _plan_at(answer: Estimate, position: int) -> Plan | None:
    return next((plan for plan in answer.plans if plan.position == position), None)


def _write(
    model: str, answer: Estimate, plan: Plan | None, asked: EstimateOptions, *, is_kept: bool
) -> None:
    from ..terminal.output import write_output

    form = chosen_format(asked.form, asked.out_file, FORMATS)
    says_warnings = form in ("json", "markdown") or (form == "table" and plan is None)
    for warning in () if says_warnings or asked.quiet else answer.warnings:
        click.echo(f"Warning: {warning}.", err=True)
    shown = _rendered(model, answer, plan, form, asked, is_kept=is_kept)
    write_output(shown, asked.out_file)
    if form != "json" and not asked.quiet:
        from ..render.plans.estimate import note_lines

        for note in note_lines(answer):
            click.echo(note, err=True)


def _rendered(
    model: str,
    answer: Estimate,
    plan: Plan | None,
    form: str,
    asked: EstimateOptions,
    *,
    is_kept: bool,
) -> str:
    if form == "json":
        return answer.model_dump_json() + "\n"
    if form == "csv":
        from ..render.plans.csv import render_csv

        return render_csv(answer)
    if form == "markdown":
        from ..render.plans.markdown import render_markdown

        return render_markdown(answer)
    from ..render.plans.estimate import note_lines, render_estimate, room_beside
    from ..render.text.columns import comfortable, to_text
    from ..render.text.folded import folded
    from ..terminal.output import screen_for

    screen = screen_for(asked.out_file)
    width = comfortable(screen.width)
    if plan is None:
        from ..render.plans.ways_to_pay import render_ways

        notes = [] if asked.quiet else note_lines(answer)
        has_end = asked.top is None and asked.out_file is None
        most_lines = room_beside(notes, screen.width) if has_end else None
        lines = [
            *render_estimate(
                answer, model=model, width=width, most_lines=most_lines, is_kept=is_kept
            ),
            *render_ways(answer, width=width),
        ]
        return to_text(folded(lines, screen.width), colour=screen.color)
    from ... import api
    from ..render.plans.explain import render_plan

    sources = api.sources(plan, offers=asked.offers, curves=given_curves(asked.curves))
    lines = render_plan(plan, answer, sources=sources, width=width)
    return to_text(folded(lines, screen.width), colour=screen.color)


def _draw(inputs: Inputs, question: Question, answer: Estimate, asked: EstimateOptions) -> None:
    from ... import api
    from ..render.plans.pareto import render_pareto
    from ..terminal.output import screen_for, write_output

    with counted_progress("Comparing numbers of nodes …", quiet=asked.quiet) as tell:
        found = api.frontier(inputs, question, answer, on_progress=tell)
    lines = render_pareto(found, answer, width=screen_for(asked.out_file).width)
    write_output("\n".join(lines) + "\n", asked.out_file)


def _write_trace(inputs: Inputs, plan: Plan, path: str) -> None:
    from ... import api
    from ..render.plans.trace import render_trace
    from ..terminal.output import write_output

    write_output(render_trace(api.timeline(inputs, plan), plan), path, option="--trace")


def _keep(answer: Estimate, inputs: Inputs, question: Question, *, quiet: bool) -> bool:
    """Store the estimate, and return whether it is; if that fails, the answer is still valid."""
    from ... import api

    try:
        api.keep(answer, inputs=inputs, question=question)
    except GpuplanError as error:
        if not quiet:
            click.echo(f"Warning: this estimate is not kept. {error}", err=True)
        return False
    return True
