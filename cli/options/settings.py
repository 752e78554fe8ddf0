"""Settings: the user's defaults for options, read from a file and the environment.

A setting is named like its option, without the dashes: `max-nodes` for `--max-nodes`. It is looked
up in the environment (`GPUPLAN_MAX_NODES`), then in `config.toml` of the config folder; an option
typed on the command line wins over both.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ...catalog.errors import GpuplanError, UsageError
from ...catalog.files import one_writer, write_atomically
from ...catalog.paths import config_dir

PREFIX = "GPUPLAN_"

Value = str | int | float | bool | list[Any]


@dataclass(frozen=True)
class Setting:
    """One value that was set somewhere, and where."""

    key: str
    value: Value
    origin: str


def config_path() -> Path:
    """Return the settings file, which need not exist."""
    return config_dir() / "config.toml"


def variable(key: str) -> str:
    """Return the environment variable of a setting.

    >>> variable("max-nodes")
    'GPUPLAN_MAX_NODES'
    """
    return PREFIX + key.upper().replace("-", "_")


def options(command: click.Command) -> dict[str, click.Option]:
    """Return the options of one command that a setting can fill, by the name of the setting."""
    named = {}
    for option in command.params:
        if isinstance(option, click.Option) and not option.is_eager and not option.hidden:
            key = max(option.opts, key=len)
            if key.startswith("--"):
                named[key.removeprefix("--")] = option
    return named


def find(key: str, stored: Mapping[str, Value]) -> Setting | None:
    """Return what a setting is set to, by the environment or else by the file."""
    if variable(key) in os.environ:
        return Setting(key, os.environ[variable(key)], f"environment {variable(key)}")
    if key in stored:
        return Setting(key, stored[key], f"file {config_path()}")
    return None


def defaults(command: click.Command) -> dict[str, Any]:
    """Return the defaults that settings give one command: what click calls its `default_map`.

    Raises:
        UsageError: The file cannot be read, or a value is not one that its option takes.
    """
    fillable = options(command)
    if not fillable:
        return {}
    stored = read()
    filled: dict[str, Any] = {}
    for key, option in fillable.items():
        setting = find(key, stored)
        if setting is None or option.name is None:
            continue
        value = checked(option, setting, command)
        if option.is_flag and not option.is_bool_flag:
            # One of several flags that share a parameter, such as --spot and --on-demand.
            if value:
                filled[option.name] = option.flag_value
        else:
            filled[option.name] = value
    return filled


def from_settings() -> tuple[str, ...]:
    """Return the options of the running command that a setting filled, not the command line."""
    context = click.get_current_context()
    return tuple(
        name.replace("_", "-")
        for name in context.params
        if context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT_MAP
    )


def named_settings(text: str) -> tuple[str, ...]:
    """Return the options that a setting filled and whose value a text names in quotes."""
    params = click.get_current_context().params
    return tuple(
        name
        for name in from_settings()
        if any(f"'{one}'" in text for one in _words(params[name.replace("-", "_")]))
    )


def _words(value: object) -> tuple[str, ...]:
    values = value if isinstance(value, (tuple, list)) else (value,)
    return tuple(one for each in values for one in str(each).split(","))


def checked(option: click.Option, setting: Setting, command: click.Command) -> Any:
    """Return a setting's value as its option takes it.

    Raises:
        UsageError: The option does not take that value.
    """
    value: Any = setting.value
    context = click.Context(command, info_name=command.name)
    try:
        if option.is_flag:
            return click.BOOL.convert(value, option, context)
        if option.multiple and isinstance(value, str):
            value = option.type.split_envvar_value(value)
        elif not option.multiple and isinstance(value, list):
            value = ",".join(str(item) for item in value)
        option.type_cast_value(context, value)
    except (click.BadParameter, GpuplanError) as error:
        reason = error.message.rstrip(".")
        raise UsageError(
            f"The setting {setting.key} = {setting.value!r} ({setting.origin}) is not usable:"
            f" {reason}.",
            fix=f"give another value, or remove it with: gpuplan config unset {setting.key}",
        ) from error
    return value


def read() -> dict[str, Value]:
    """Return what the settings file holds; empty when there is no file.

    Raises:
        UsageError: The file cannot be read, is not TOML, or holds a table.
    """
    path = config_path()
    try:
        stored = tomllib.loads(_text(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(
            f"The settings file {path} cannot be read: {error.strerror}.",
            fix="make it readable, or point GPUPLAN_HOME at another folder",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"The settings file {path} is not TOML: {error}.",
            fix='write one `option = value` a line, such as: provider = "aws"',
        ) from error
    for key, value in stored.items():
        if not isinstance(value, (str, int, float, bool, list)):
            raise UsageError(
                f"In the settings file {path}, {key} is neither text, a number, true or false,"
                " nor a list of them.",
                fix='write one `option = value` a line, such as: provider = "aws"',
            )
    return stored


def write(key: str, value: Value | None) -> None:
    """Store one setting, or remove it when `value` is None, leaving every other line as it is.

    Raises:
        GpuplanError: The file cannot be written; it is then as it was.
    """
    with contextlib.ExitStack() as stack:
        # A folder that cannot be written is said where the file is.
        with contextlib.suppress(OSError):
            stack.enter_context(one_writer(config_path().with_suffix(".lock")))
        _write(key, value)


def _write(key: str, value: Value | None) -> None:
    stored = read()
    path = config_path()
    old = _text(path) if path.exists() else ""
    wanted = {name: kept for name, kept in stored.items() if name != key}
    kept_lines = _without(key, old)
    if tomllib.loads(kept_lines) != wanted:
        # The value spans lines: comments cannot be kept with certainty, the values can.
        kept_lines = _toml(wanted.items())
    _replace(path, kept_lines if value is None else kept_lines + _toml([(key, value)]))


def _text(path: Path) -> str:
    """Return the file without the mark that editors of Windows put before UTF-8."""
    return path.read_text(encoding="utf-8-sig")


def _without(key: str, text: str) -> str:
    """Return the text less the lines that set `key`, as far as whole lines tell."""
    sets_key = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*=""")
    kept = "\n".join(line for line in text.splitlines() if not sets_key.match(line))
    try:
        tomllib.loads(kept)
    except tomllib.TOMLDecodeError:
        return ""
    return kept + "\n" if kept else ""


def _toml(items: Iterable[tuple[str, Value]]) -> str:
    """Return settings as TOML lines.

    JSON writes these kinds of value as TOML does, but for what it escapes: TOML knows no halves of
    a character, and wants DEL escaped.
    """
    lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in items)
    return "".join(lines).replace("\x7f", "\\u007f")


def _replace(path: Path, text: str) -> None:
    """Write a whole file at once, so that a full disk or an interrupt leaves the old one."""
    try:
        write_atomically(path, text, mode=0o600)
    except OSError as error:
        raise GpuplanError(
            f"The settings file {path} cannot be written: {error.strerror}.",
            fix="make the folder writable, or point GPUPLAN_HOME at another one",
        ) from error
