"""docs/commands.md, made from `--help`:  python -m gpuplan.cli.help_page > docs/commands.md."""

from __future__ import annotations

from collections.abc import Iterator

import click

from .main import cli

WIDTH = 96

INTRODUCTION = """\
# Commands

What `--help` says of every command. This page is made by `python -m gpuplan.cli.help_page`; a test
compares the two.
"""


def help_page() -> str:
    """Return the help of every command as one Markdown page."""
    return INTRODUCTION + "".join(
        f"\n## {context.command_path}\n\n```text\n{context.get_help()}\n```\n"
        for context in contexts()
    )


def contexts() -> Iterator[click.Context]:
    """Yield a context of the root and of every command below it, each with its full path."""
    root = click.Context(
        cli, info_name="gpuplan", terminal_width=WIDTH, help_option_names=["-h", "--help"]
    )
    yield from _below(root)


def _below(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None and not command.hidden:
                yield from _below(click.Context(command, info_name=name, parent=context))


if __name__ == "__main__":
    print(help_page(), end="")
