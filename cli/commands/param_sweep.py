"""`gpuplan estimate --param layers=12,24,48`: one estimate for each value, in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...catalog.errors import GpuplanError, NoFeasiblePlanError, UsageError
from ...planner.plan.question import Question
from ..options.curves import given_curves
from ..options.estimate import EstimateOptions
from ..options.values.param_lists import split_params
from ..terminal.output import screen_for, write_output
from ..terminal.progress import counted_progress

if TYPE_CHECKING:
    from ...api import Inputs
    from ...planner.plan.answer.estimate import Estimate
    from ...planner.plan.answer.param_sweep import Sweep

OF_ONE_ANSWER = ("explain", "trace", "pareto")


def run_sweep(model: str, asked: EstimateOptions, question: Question, *, form: str) -> int:
    """Print one row for every combination of values, and return the exit code.

    0 where any row has a plan, 3 where none has, 1 where no value could be traced.

    Raises:
        UsageError: An option needs a single answer.
    """
    from ... import api
    from ..terminal.notices import show_output_of_file, warnings_to_stderr

    _refuse_options_of_one_answer(asked)
    fixed, lists = split_params(asked.params)

    def keep(inputs: Inputs, answer: Estimate) -> None:
        try:
            api.keep(answer, inputs=inputs, question=question)
        except GpuplanError as error:
            if not asked.quiet:
                click.echo(f"Warning: this estimate is not kept. {error}", err=True)

    quiet = asked.quiet
    with (
        warnings_to_stderr(quiet=quiet),
        counted_progress(f"Estimating {model} …", quiet=quiet) as tell,
    ):
        answer = api.sweep(
            model,
            lists,
            question,
            params=fixed,
            inputs=asked.inputs,
            assume=asked.assumed,
            offers=asked.offers,
            pricebook=asked.pricebook,
            curves=given_curves(asked.curves),
            timeout_s=asked.timeout,
            use_cache=not asked.no_cache,
            on_output=show_output_of_file if asked.verbose else None,
            on_answer=keep,
            on_progress=tell,
        )
    write_output(_rendered(answer, form, asked), asked.out_file)
    if any(row.plan for row in answer.sweep):
        return 0
    traced = any(row.workload for row in answer.sweep)
    return NoFeasiblePlanError.exit_code if traced else GpuplanError.exit_code


def _refuse_options_of_one_answer(asked: EstimateOptions) -> None:
    for name in OF_ONE_ANSWER:
        if getattr(asked, name):
            raise UsageError(
                f"--{name} is about one answer, and a param has several values.",
                fix=f"leave --{name} out, or give each --param one value.",
            )


def _rendered(answer: Sweep, form: str, asked: EstimateOptions) -> str:
    from ..render.plans.param_sweep import render_sweep, render_sweep_csv, render_sweep_markdown

    if form == "json":
        return answer.model_dump_json() + "\n"
    if form == "csv":
        return render_sweep_csv(answer)
    if form == "markdown":
        return render_sweep_markdown(answer)
    return render_sweep(answer, screen_for(asked.out_file))
