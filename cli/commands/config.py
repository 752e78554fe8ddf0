"""`gpuplan config`: defaults for options, kept in a file."""

from __future__ import annotations

import os

import click

from ...catalog.errors import UsageError, did_you_mean
from ..options import settings
from ..options.settings import PREFIX, Setting, Value

with_origin = click.option("--origin", is_flag=True, help="Show where each value comes from.")


@click.group("config")
def command() -> None:
    """Store defaults for options, so that you need not type them again.

    A setting is named like its option: "gpuplan config set max-nodes 8" makes --max-nodes 8 the
    default of every command that has it. An option you type wins over the environment
    (GPUPLAN_MAX_NODES), and that wins over the file.
    """


@command.command("set")
@click.argument("key")
@click.argument("values", metavar="VALUE...", nargs=-1, required=True)
@click.pass_context
def set_value(context: click.Context, key: str, values: tuple[str, ...]) -> None:
    """Store the default of one option; several values where it can be given several times."""
    owner, option = _find(context, key)
    first, *more = values
    if more and not option.multiple:
        raise UsageError(
            f"--{key} takes one value, and {len(values)} were given: {' '.join(values)}.",
            fix="give one value; quote it if it holds spaces",
        )
    given: Value = list(values) if option.multiple else first
    checked = settings.checked(option, Setting(key, given, "given"), owner)
    settings.write(key, _plain(option, checked))


@command.command("unset")
@click.argument("key")
def unset(key: str) -> None:
    """Remove one setting from the file."""
    stored = settings.read()
    if key not in stored:
        raise UsageError(
            f"{key} is not set in {settings.config_path()}.{did_you_mean(key, stored)}",
            fix="see what is set with: gpuplan config list",
        )
    settings.write(key, None)


@command.command("get")
@click.argument("key")
@with_origin
@click.pass_context
def get(context: click.Context, key: str, origin: bool) -> None:
    """Print the value that a command would take for one option."""
    _, option = _find(context, key)
    setting = settings.find(key, settings.read())
    if setting is None:
        default = option.get_default(context)
        shown = default if isinstance(default, (bool, int, float, str)) else ""
        setting = Setting(key, shown, "default of the option")
    click.echo(_shown(setting.value) + (f"\t{setting.origin}" if origin else ""))


@command.command("list")
@with_origin
@click.pass_context
def list_all(context: click.Context, origin: bool) -> None:
    """Print every setting of the file and the environment."""
    known = _all_options(context)
    stored = settings.read()
    for key in sorted({*stored, *(k for k in known if settings.variable(k) in os.environ)}):
        setting = settings.find(key, stored)
        if setting is not None:
            line = f"{key} = {_shown(setting.value)}"
            click.echo(f"{line}\t{setting.origin}" if origin else line)
        if key not in known:
            click.echo(f"Warning: no command has --{key}.{did_you_mean(key, known)}", err=True)


@command.command("path")
def path() -> None:
    """Print where the settings file is, or would be."""
    click.echo(settings.config_path())


def _all_options(context: click.Context) -> dict[str, tuple[click.Command, click.Option]]:
    """Return every option of every command by its setting's name, with a command that has it."""
    root = context.find_root()
    assert isinstance(root.command, click.Group)
    found: dict[str, tuple[click.Command, click.Option]] = {}
    for name in root.command.list_commands(root):
        owner = root.command.get_command(root, name)
        if owner is not None and owner is not command:
            for key, option in settings.options(owner).items():
                found.setdefault(key, (owner, option))
    return found


def _find(context: click.Context, key: str) -> tuple[click.Command, click.Option]:
    """Return the option that a setting sets.

    Raises:
        UsageError: No command has it.
    """
    known = _all_options(context)
    if key not in known:
        raise UsageError(
            f"No command has an option --{key}, so it cannot be set.{did_you_mean(key, known)}",
            fix="name an option of a command without its dashes, as in `gpuplan config set provider"
            f" aws,gcp` (or, in the environment, {PREFIX}PROVIDER); `gpuplan estimate --help` lists"
            " those of estimate.",
        )
    return known[key]


def _plain(option: click.Option, value: object) -> Value:
    """Return a value as the file holds it: numbers and true or false as such, the rest as text."""
    if isinstance(value, (bool, list)):
        return value
    text = str(value)
    if isinstance(option.type, click.types.IntParamType):
        return int(text)
    if isinstance(option.type, click.types.FloatParamType):
        return float(text)
    return text


def _shown(value: Value) -> str:
    """Return a value as it is typed on the command line."""
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
