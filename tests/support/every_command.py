"""Every command of gpuplan with words that it may take, so that a new one is tried by itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

from gpuplan.cli.main import cli

MODEL = """\
import torch


def build_model():
    return torch.nn.Linear(4, 4)


def make_batch(batch_size=2):
    return (torch.randn(batch_size, 4),)


def compute_loss(model, batch):
    return model(*batch).sum()
"""
LONGEST_S = 8.0
"""A command that serves or measures until it is ended gets Ctrl-C then."""


def every_command() -> dict[str, click.Command]:
    """Return the commands by the words that call them: "prices refresh"."""
    return dict(_below(cli, click.Context(cli), ()))


def _below(
    group: click.Group, context: click.Context, path: tuple[str, ...]
) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            below = click.Context(command, parent=context, info_name=name)
            yield from _below(command, below, (*path, name))


def words_of(command: click.Command, model: str) -> list[list[str]]:
    """Return words for a command: none, what it requires, and that with the options that differ."""
    required: list[str] = []
    options: list[str] = []
    for one in command.params:
        if isinstance(one, click.Argument) and one.required:
            required.append(model if "model" in (one.name or "") else "nothing-of-that-name")
        elif isinstance(one, click.Option) and "--format" in one.opts:
            options += ["--format", "json"]
        elif isinstance(one, click.Option) and {"-v", "--verbose"} & {*one.opts}:
            options.append("-v")
    several = ([], required, [*required, *options], ["--no-such-option"])
    return [words for place, words in enumerate(several) if words not in several[:place]]


@contextmanager
def interrupted_after(limit_s: float = LONGEST_S) -> Iterator[None]:
    """Press Ctrl-C in the block when it takes longer."""
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(limit_s, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
