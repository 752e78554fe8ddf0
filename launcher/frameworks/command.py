"""What the user typed after --command: a Python script, a module or any program, with its words."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Literal

from ...catalog.errors import UsageError
from .words import Fact, Word

FIX = 'write it as --command "train.py --flags", "-m package.module --flags" or "program --flags".'
PYTHON_NAME = re.compile(r"python(3(\.\d+)?)?")
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "2>&1"})


@dataclass(frozen=True)
class Target:
    """What is run: `name` is a script's path, a module's dotted name or a program."""

    kind: Literal["script", "module", "program"]
    name: str
    arguments: tuple[str, ...]

    @property
    def python_words(self) -> tuple[Word, ...]:
        """The command as it is run without any launcher."""
        if self.kind == "program":
            return (self.name, *self.arguments)
        module = ("-m",) if self.kind == "module" else ()
        return (Fact.PYTHON, *module, self.name, *self.arguments)

    def words(self, *, module: str, program: str) -> tuple[Word, ...]:
        """Return the command for a launcher whose flags for a module and a program are these."""
        flag = {"script": (), "module": (module,), "program": (program,)}[self.kind]
        return (*flag, self.name, *self.arguments)


def parse_command(text: str) -> Target:
    """Return what a command runs; its quotes are read as a shell reads them, nothing else is.

    Raises:
        UsageError: it is empty, a quote is left open, or it starts with an assignment.
    """
    if "\0" in text:
        raise UsageError("The command has a NUL character in it.", fix=FIX)
    try:
        words = shlex.split(text)
    except ValueError:
        raise UsageError(f"The command {text!r} leaves a quote open.", fix="close it.") from None
    if not words or not words[0]:
        raise UsageError("The command is empty.", fix=FIX)
    if ASSIGNMENT.fullmatch(words[0]):
        raise UsageError(
            f"The command starts with {words[0]!r}, which only a shell understands.",
            fix=f'put env before it: --command "env {words[0]} …".',
        )
    return _target(words)


def shell_notes(target: Target) -> tuple[str, ...]:
    """Return a note where a word looks like a piece of shell, since no shell reads the command."""
    found = sorted(SHELL_WORDS.intersection(target.arguments))
    if not found or target.name in ("sh", "bash"):
        return ()
    return (
        f"{' '.join(found)} is given to {target.name} as it stands: no shell reads the command;"
        " where you mean the shell's, write --command \"bash -c '…'\".",
    )


def _target(words: list[str]) -> Target:
    if PYTHON_NAME.fullmatch(words[0]) and len(words) > 1:
        rest = words[1:]
        if rest[0].endswith(".py") or (rest[0] == "-m" and len(rest) > 1):
            words = rest
    if words[0] == "-m":
        if len(words) < 2:
            raise UsageError("The command names no module after -m.", fix=FIX)
        return Target("module", words[1], tuple(words[2:]))
    if words[0].startswith("-"):
        raise UsageError(f"The command starts with an option, {words[0]!r}.", fix=FIX)
    kind = "script" if words[0].endswith(".py") else "program"
    return Target(kind, words[0], tuple(words[1:]))
