"""Options that contradict each other, and files in a format that a command does not write.

Seen when a command line is parsed, before any work: what a setting says is no contradiction, as an
option typed on the command line wins over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ...catalog.errors import UsageError
from ..terminal.output import OTHER_FORMATS, SUFFIXES


def refuse_contradictions(context: click.Context, words: Sequence[str]) -> None:
    """Refuse a command line whose options rule each other out.

    Args:
        context: of the command, its parameters parsed.
        words: the command line as typed.

    Raises:
        UsageError: It says one thing and its opposite, or names a file of a format that the
            command does not write.
    """
    typed = {word.split("=")[0] for word in words[: _end(words)]}
    _refuse_opposite_flags(context.command, typed)
    _refuse_fewer_nodes_than_given(context)
    _refuse_unlike_stack(context)
    _refuse_other_format(context)


def _end(words: Sequence[str]) -> int:
    """Return how many words stand before "--", after which there are no options."""
    return list(words).index("--") if "--" in words else len(words)


def _refuse_opposite_flags(command: click.Command, typed: set[str]) -> None:
    """Refuse two options of one parameter: --spot --on-demand, --compile --no-compile."""
    flags: dict[str, list[str]] = {}
    options = [one for one in command.params if isinstance(one, click.Option)]
    flagged = {one.name for one in options if one.is_flag}
    for param in options:
        # --purchase WORD stands beside --spot, and fills what that does.
        if param.name is not None and param.name in flagged:
            for names in (param.opts, param.secondary_opts):
                flags.setdefault(param.name, []).extend(name for name in names if name in typed)
    for given in flags.values():
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} contradict each other.", fix="keep one.")


def _refuse_fewer_nodes_than_given(context: click.Context) -> None:
    nodes: tuple[int, ...] = context.params.get("nodes") or ()
    most = context.params.get("max_nodes")
    was_typed = context.get_parameter_source("max_nodes") == ParameterSource.COMMANDLINE
    if isinstance(nodes, tuple) and nodes and most is not None and was_typed and max(nodes) > most:
        raise UsageError(
            f"--nodes {max(nodes)} is more than --max-nodes {most} allows.",
            fix="leave --max-nodes out: --nodes gives exactly the numbers that are tried.",
        )


def _refuse_unlike_stack(context: click.Context) -> None:
    stack, compiles = context.params.get("stack"), context.params.get("compile")
    if (compiles, stack) in ((True, "torch-eager"), (True, "xla"), (False, "torch-compile")):
        flag = "--compile" if compiles else "--no-compile"
        raise UsageError(f"{flag} and --stack {stack} contradict each other.", fix="keep one.")


def _refuse_other_format(context: click.Context) -> None:
    """Refuse a file whose name ends as in a format that is not written, unless one is named."""
    out_file: Any = context.params.get("out_file")
    formats = _formats(context.command)
    if not out_file or not formats or context.params.get("form") is not None:
        return
    suffix = Path(out_file).suffix.casefold()
    meant = SUFFIXES.get(suffix) or suffix.removeprefix(".").replace("yml", "yaml")
    is_a_format = suffix in OTHER_FORMATS or (suffix in SUFFIXES and meant != "table")
    if is_a_format and meant not in formats:
        endings = [ending for ending, form in SUFFIXES.items() if form in formats]
        raise UsageError(
            f"--out-file {out_file}: gpuplan {context.info_name} writes no {suffix} files.",
            fix=f"end the name in {', '.join(endings)}, or give --format {'|'.join(formats)}.",
        )


def _formats(command: click.Command) -> tuple[str, ...]:
    found = next((param for param in command.params if param.name == "form"), None)
    return tuple(getattr(found.type, "words", ())) if found is not None else ()
