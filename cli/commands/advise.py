"""`gpuplan advise`: what to change of today's setting, one thing at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...catalog.errors import NoFeasiblePlanError
from ...catalog.vocabulary import FROZEN_CHOICES, OPTIMIZERS, PRECISIONS, RECOMPUTES, STACKS
from ...planner.plan.question import MOST_OOM
from ..options.advise import AdviseOptions, setting_question
from ..options.curves import curves_option, given_curves
from ..options.estimate import OFFLOADS, WHOLE, amount_of_work, offers_option
from ..options.inputs import read_inputs
from ..options.shared import (
    GroupedCommand,
    LayoutText,
    OneOf,
    list_option,
    model_options,
    option,
    output_options,
)
from ..options.values.amounts import ALL, BatchSize, CountOrAll, Share
from ..terminal.progress import counted_progress

if TYPE_CHECKING:
    from ...planner.advise.answer import Advice

FORMATS = ("table", "json", "markdown")
DEFAULT_TOP = 5


@click.command("advise", cls=GroupedCommand)
@model_options
@amount_of_work
@option("Work", "--steps", type=WHOLE, help="Number of optimizer steps of today's global batch.")
@option("Machine", "--on", metavar="NAME[:COUNT]", help="Accelerators of one machine: H100:8.")
@option("Machine", "--plan", metavar="PLAN-ID", help="A kept plan that says all of the setting.")
@option("Machine", "--instance", metavar="NAME", help="Instance type: p5.48xlarge.")
@option("Machine", "--nodes", type=WHOLE, help="Machines; default: as many as --layout needs.")
@list_option("Machine", "--provider", help='Only these providers; "all" adds marketplaces.')
@list_option("Machine", "--region", help="Only these regions.")
@curves_option
@offers_option
@option("Layout", "--layout", type=LayoutText(), help="Default: dp over all accelerators.")
@option("Layout", "--micro-batch", type=WHOLE, help="Default: that of make_batch, else 1.")
@option("Layout", "--grad-accum", type=WHOLE, help="Default: what makes --global-batch, else 1.")
@option("Layout", "--global-batch", type=BatchSize(), help="512 samples, or 0.5M-tokens.")
@option("Layout", "--precision", type=OneOf(PRECISIONS), help="Default: the file's own, else fp32.")
@option("Layout", "--recompute", type=OneOf(RECOMPUTES), help="Default: none.")
@option(
    "Layout",
    "--frozen-precision",
    type=OneOf(FROZEN_CHOICES),
    help="How frozen parameters are kept; default: bf16 if a config says so, else as --precision.",
)
@option("Layout", "--compile/--no-compile", default=None, help="Default: as the file does.")
@option("Layout", "--stack", type=OneOf(STACKS), help="Software that runs the step.")
@option("Layout", "--optimizer", type=OneOf(OPTIMIZERS), help="Default: the file's own.")
@list_option("Layout", "--offload", OneOf(OFFLOADS), help="What is kept in host memory.")
@option(
    "Money",
    "--on-demand",
    "purchase",
    flag_value="on-demand",
    default=True,
    help="Count on-demand prices (the default).",
)
@option("Money", "--spot", "purchase", flag_value="spot", help="Count spot prices.")
@option(
    "Money",
    "--max-oom-risk",
    type=Share(),
    default=MOST_OOM,
    show_default=True,
    help="Changes with a larger chance of running out of memory than this and today's come later.",
)
@option("Output", "--top", type=CountOrAll(), help="Changes to show in full, or all; default: 5.")
@output_options(*FORMATS)
def command(model: str, **options: Any) -> int:
    """Say what to change of how MODEL is trained today, and what each change saves and risks.

    One thing is changed at a time: micro-batch, global batch, precision, recompute, torch.compile,
    sharding, optimizer, input, offload, machine. Each is planned anew by the same prediction as
    `gpuplan estimate`. What is not given of today's setting is taken from the file, and said.

    \b
    Examples:
      gpuplan advise model.py --on H100:8 --tokens 10B
      gpuplan advise model.py --instance g5.12xlarge --layout fsdp4 --micro-batch 4 --grad-accum 8
      gpuplan advise model.py --plan 3f2a10c4

    The exit code is 3 when neither today's setting nor anything that was tried fits.
    """  # noqa: D301
    from ... import api
    from ..terminal.output import chosen_format, write_output

    asked = AdviseOptions(**options)
    today = setting_question(asked)
    plan = None if asked.plan is None else api.kept_plan(asked.plan)
    inputs = read_inputs(
        model, asked, precisions=(), machine=today.machine, curves=given_curves(asked.curves)
    )
    work = today.work
    amounts = (work.tokens, work.samples, work.epochs, work.steps)
    with counted_progress("Changing one thing at a time …", quiet=asked.quiet) as tell:
        if plan is None:
            answer = api.advise(inputs, today, on_progress=tell)
        else:
            given = any(one is not None for one in amounts)
            answer = api.advise(
                inputs,
                plan,
                work=work if given else None,
                others=today.machine,
                on_progress=tell,
            )
    form = chosen_format(asked.form, asked.out_file, FORMATS)
    write_output(_rendered(answer, form, asked), asked.out_file)
    if form != "json" and not asked.quiet:
        from ..render.text.notes import joined_notes

        for note in joined_notes(answer.notes):
            click.echo(f"Note: {note}.", err=True)
    helped = (*answer.changes, answer.together)
    fitting = any(one is not None and one.verdict == "makes_it_fit" for one in helped)
    return 0 if answer.today_fits or fitting else NoFeasiblePlanError.exit_code


def _rendered(answer: Advice, form: str, asked: AdviseOptions) -> str:
    if form == "json":
        return answer.model_dump_json() + "\n"
    from ..render.plans.advise import advice_markdown, render_advice
    from ..render.text.columns import comfortable, to_text
    from ..render.text.folded import folded
    from ..terminal.output import screen_for

    top = DEFAULT_TOP if asked.top is None else asked.top
    most = None if top == ALL else top
    if form == "markdown":
        return advice_markdown(answer, most=most)
    screen = screen_for(asked.out_file)
    lines = render_advice(answer, most=most, width=comfortable(screen.width))
    return to_text(folded(lines, screen.width), colour=screen.color)
