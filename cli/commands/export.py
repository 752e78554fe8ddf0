"""`gpuplan export`: a plan as the file of another tool."""

from __future__ import annotations

import click

from ...catalog.vocabulary import EXPORT_TOOLS
from ..options.shared import GroupedCommand, OneOf, option


@click.command("export", cls=GroupedCommand)
@click.argument("plan", metavar="PLAN-ID|FILE")
@option("Output", "--to", "tool", type=OneOf(EXPORT_TOOLS), required=True, help="For this tool.")
@option(
    "Output",
    "--command",
    "script",
    metavar="COMMAND",
    default="train.py",
    show_default=True,
    help='Your script as you start it: "train.py --flags", or "-m module".',
)
@option(
    "Output",
    "-o",
    "--out-file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write to this file instead of printing; it is never left incomplete.",
)
@option("Output", "-q", "--quiet", is_flag=True, help="No notes on stderr.")
def command(plan: str, tool: str, script: str, out_file: str | None, quiet: bool) -> None:
    """Write a plan as a file of another tool (docs/frameworks.md).

    skypilot: a task; torchrun: a shell script for every node; deepspeed: its JSON; accelerate: its
    YAML. What the file cannot say is noted on stderr. A plan that the tool cannot carry out is
    refused, with the tools that can.

    \b
    Examples:
      gpuplan export 24d0a27b1e --to accelerate --out-file accelerate.yaml
      gpuplan export plan.json --to torchrun --command "train.py --lr 3e-4"
    """  # noqa: D301
    from ... import api
    from ..terminal.output import write_output

    exported = api.export(plan, tool, command=script)
    write_output(exported.text, out_file)
    for note in () if quiet else exported.notes:
        click.echo(f"Note: {note}.", err=True)
