"""What a trace takes unknown values to be: what the user states by line, and checks that pass."""

from __future__ import annotations

import ast
import linecache
import site
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

from ..user_model.assumptions import Assumption

CHECK_PASSES = (
    "checks values and stops the step where the check fails: the trace takes it as passed"
)
ALL_FINITE = "asks whether values are finite: the trace takes them to be"
FINITE = {("all", "isfinite"): True, ("any", "isinf"): False, ("any", "isnan"): False}
"""`torch.isfinite(x).all()` and the like → what it is where every value is finite."""


class Assumed:
    """Answers for the values of tensors, by the line that reads them.

    Args:
        assumptions: What the user states.
        folder: That of the user's file: places in it are named from there.
        notes: Gets a note for every line that was answered for.
    """

    def __init__(
        self, assumptions: Sequence[Assumption], *, folder: Path | None, notes: list[str]
    ) -> None:
        self._assumptions = tuple(assumptions)
        self._folder = folder
        self._notes = notes
        self._used: set[Assumption] = set()
        self.batch_size: int | None = None
        """Samples in the batch of the step that runs; None while the model is built."""

    @property
    def has_shares(self) -> bool:
        """Return whether a size is stated as a share of the values that are looked at."""
        sizes = [one.value for one in self._assumptions if not isinstance(one.value, bool)]
        return any(size.kind == "share" for size in sizes)

    def condition(self, frame: FrameType | None) -> bool | None:
        """Return how the condition that a frame asks for comes out; None if nobody says."""
        if frame is None:
            return None
        stated = self._stated(frame, of_condition=True)
        if stated is not None and isinstance(stated.value, bool):
            word = str(stated.value).lower()
            self._note(stated, f"assumed: the condition at {stated.place} is {word}")
            return stated.value != is_negated(frame)
        passes = condition_of_check(frame)
        if passes is not None:
            self._add(f"{self.place(frame)} {CHECK_PASSES}")
            return passes
        finite = condition_of_finite(frame)
        if finite is not None:
            self._add(f"{self.place(frame)} {ALL_FINITE}")
        return finite

    def size(self, frame: FrameType | None, available: int | None) -> int | None:
        """Return how many values a line finds; None if nobody says.

        Args:
            frame: That runs the line.
            available: How many it looks at; None where they are not counted.
        """
        stated = None if frame is None else self._stated(frame, of_condition=False)
        if stated is None or isinstance(stated.value, bool):
            return None
        found = stated.value.of(available, self.batch_size)
        if found is not None:
            self._note(stated, f"assumed: {stated.place} finds {stated.value.text}")
        return found

    def place(self, frame: FrameType) -> str:
        """Return the line of a frame as an option names it: "model.py:12"."""
        file = Path(frame.f_code.co_filename).absolute()
        roots = (*_installed(), self._folder)
        root = next((each for each in roots if each and file.is_relative_to(each)), None)
        shown = file if root is None else file.relative_to(root)
        return f"{shown.as_posix()}:{frame.f_lineno}"

    def unused_notes(self) -> list[str]:
        """Return a note for each statement that no line asked for."""
        return [
            f"{each.option} changed nothing: no such value is read at that line"
            for each in self._assumptions
            if each not in self._used
        ]

    def _stated(self, frame: FrameType, *, of_condition: bool) -> Assumption | None:
        for each in self._assumptions:
            is_wanted = isinstance(each.value, bool) == of_condition
            if is_wanted and each.is_at(frame.f_code.co_filename, frame.f_lineno):
                return each
        return None

    def _note(self, stated: Assumption, text: str) -> None:
        self._used.add(stated)
        self._add(f"{text} ({stated.option.split()[0]})")

    def _add(self, note: str) -> None:
        if note not in self._notes:
            self._notes.append(note)


def condition_of_check(frame: FrameType) -> bool | None:
    """Return how the condition that a frame asks for comes out, where a step goes on only then.

    `if values.any(): raise …` and `assert values.all()` stop a training that goes wrong; the step
    of one that works passes them. None for every other condition.
    """
    return _only_answer(_checks(frame.f_code.co_filename), frame)


def is_negated(frame: FrameType) -> bool:
    """Return whether the condition that a frame runs is so where what it asks for is not.

    `if not x.any():` asks for `x.any()`. Of a line with parts of both kinds nobody can say.
    """
    return _only_answer(_stated_conditions(frame.f_code.co_filename), frame) is False


def condition_of_finite(frame: FrameType) -> bool | None:
    """Return how a condition comes out that asks whether all values are finite, where they are.

    `if not torch.isfinite(x).all(): x = torch.clamp(…)` mends what overflowed in 16 bits. None for
    every other condition, and where another one stands on the same line.
    """
    return _only_answer(_finite_conditions(frame.f_code.co_filename), frame)


def _only_answer(checks: Sequence[_Check], frame: FrameType) -> bool | None:
    # Python says which line asks, and not which part of it: parts that differ cannot be told apart.
    wanted = {one.passes for one in checks if frame.f_lineno in one.lines}
    return wanted.pop() if len(wanted) == 1 else None


@dataclass(frozen=True)
class _Check:
    """A condition that is asked for by itself, as a part of what stops a step."""

    lines: frozenset[int]
    """Its lines and the first of its statement: Python may say either is running."""
    passes: bool | None
    """None of a condition that nothing is known of."""


@cache
def _checks(filename: str) -> tuple[_Check, ...]:
    """Return the conditions of the checks in a source file; none if it cannot be read."""
    found: list[_Check] = []
    for node in ast.walk(_parsed(filename)):
        if isinstance(node, ast.If) and _stops(node.body[-1]):
            found += _conditions(node.test, node.lineno, False)
        elif isinstance(node, ast.Assert):
            found += _conditions(node.test, node.lineno, True)
        elif isinstance(node, ast.Call) and _is_assert(node):
            found += _conditions(node, node.lineno, True)
    return tuple(found)


@cache
def _stated_conditions(filename: str) -> tuple[_Check, ...]:
    """Return what conditions of a source file ask for; `passes` where that makes them true."""
    found: list[_Check] = []
    for node in ast.walk(_parsed(filename)):
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            found += _conditions(node.test, node.lineno, True)
    return tuple(found)


@cache
def _finite_conditions(filename: str) -> tuple[_Check, ...]:
    """Return the conditions of a source file that ask for values, with the answers that are known.

    Those without a call ask for none: `x.dtype == torch.float16` beside one is no other question.
    """
    found: list[_Check] = []
    for node in ast.walk(_parsed(filename)):
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            for part in _parts(node.test):
                if any(isinstance(each, ast.Call) for each in ast.walk(part)):
                    lines = range(part.lineno, (part.end_lineno or part.lineno) + 1)
                    found.append(_Check(frozenset((node.lineno, *lines)), _if_finite(part)))
    return tuple(found)


def _parts(test: ast.expr) -> Iterator[ast.expr]:
    """Yield what a condition asks for: `a`, `b` and `c` of `a and (b or not c)`."""
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _parts(part)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand)
    else:
        yield test


def _if_finite(part: ast.expr) -> bool | None:
    """Return what `torch.isfinite(x).all()` and the like are where all values are finite."""
    if not isinstance(part, ast.Call) or not isinstance(part.func, ast.Attribute):
        return None
    asked = part.func.value
    if not isinstance(asked, ast.Call) or not isinstance(asked.func, ast.Attribute):
        return None
    return FINITE.get((part.func.attr, asked.func.attr))


def _parsed(filename: str) -> ast.AST:
    """Return a source file as a tree; an empty one if it cannot be read."""
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def _conditions(test: ast.expr, statement: int, passes: bool) -> Iterator[_Check]:
    """Yield the parts of a condition that are each asked for, with what makes the whole come out.

    Of `a and b` not both need to be false; that the first is, is the usual case.
    """
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _conditions(part, statement, passes)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _conditions(test.operand, statement, not passes)
    else:
        own_lines = range(test.lineno, (test.end_lineno or test.lineno) + 1)
        yield _Check(frozenset((statement, *own_lines)), passes)


def _stops(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Raise):
        return True
    if isinstance(statement, ast.Assert):
        return isinstance(statement.test, ast.Constant) and not statement.test.value
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    call = statement.value
    asserted = call.args[0] if call.args else None
    return _is_assert(call) and isinstance(asserted, ast.Constant) and not asserted.value


def _is_assert(call: ast.Call) -> bool:
    """Return whether it is `torch._assert(…)`."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "_assert"


@cache
def _installed() -> tuple[Path, ...]:
    names = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    return tuple(Path(one) for one in (*names, *site.getsitepackages()) if one)
