"""What options and commands of other tools are called here: who types one is told the right one."""

from __future__ import annotations

from collections.abc import Sequence

import click

REQUIRED = "  [required]"
"""What click adds to the help of an option that must be given."""
CALLED_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "--accelerator": ("--on",),
    "--accelerators": ("--accelerator", "--on"),
    "--cluster": ("--on", "--instance"),
    "--gpu": ("--accelerator", "--on"),
    "--gpus": ("--accelerator", "--on"),
    "--instance-type": ("--instance",),
    "--cloud": ("--provider",),
    "--infra": ("--provider",),
    "--batch-size": ("--global-batch", "--micro-batch"),
    "--max-cost": ("--budget",),
    "--num-nodes": ("--nodes",),
    "--json": ("--format",),
    "--csv": ("--format",),
    "--output": ("--out-file", "--out-dir"),
}
"""Options of other commands, of other tools (`sky launch --help`: --gpus, --infra, --cloud,
--instance-type, --num-nodes) and of training scripts → those that say the same here."""
COMMANDS_ELSEWHERE: dict[str, str] = {
    "explain": "`gpuplan estimate MODEL --explain 1`, or `gpuplan show PLAN-ID`",
    "compare": "`gpuplan estimate MODEL --by accelerator`, or `gpuplan diff` of two budgets",
    "cost": "`gpuplan estimate MODEL`",
    "predict": "`gpuplan estimate MODEL`",
    "memory": "`gpuplan fits MODEL --on ACCELERATOR`",
    "train": "`gpuplan run MODEL` on this machine, or `gpuplan launch PLAN-ID`",
    "list": "`gpuplan plans`",
    "cancel": "`gpuplan stop`",
}
"""What people call a command, or other tools do (`sky cancel`) → what does it here."""


def command_elsewhere(name: str) -> str:
    """Return how to fix a command that is called otherwise here; else an empty string."""
    found = COMMANDS_ELSEWHERE.get(name)
    return f"\nTo fix: write {found}." if found else ""


def with_own_name(
    error: click.NoSuchOption, params: Sequence[click.Parameter], ctx: click.Context
) -> click.NoSuchOption:
    """Return an error that an option is not there, with what it is called here.

    Args:
        error: as click raised it.
        params: those of the command.
        ctx: of the command.
    """
    records = [
        record
        for name in CALLED_ELSEWHERE.get(error.option_name, ())
        for param in params
        if name in param.opts and (record := param.get_help_record(ctx)) is not None
    ]
    if not records:
        return error
    forms = " or ".join(form for form, _ in records)
    purpose = records[0][1].removesuffix(REQUIRED)
    message = f"No such option {error.option_name!r}.\nTo fix: write {forms}: {purpose}"
    return click.NoSuchOption(error.option_name, message, ctx=ctx)
