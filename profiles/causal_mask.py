"""Whether the masks that attention takes are causal ones, as the model's file makes them.

A trace knows the shape of a mask and not its values; the file says how it is made. Standard library
only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MASKED_CALL = re.compile(r"^(?P<where>.*?) gives attention a mask\b")
"""The note of a trace on a line that gives attention a mask (profiles/trace/gpu/functions.py)."""
LINE_OF_FILE = re.compile(r"^(?P<file>.+):(?P<line>\d+)(, in \w+)?$")
ATTENTION = "scaled_dot_product_attention"
MASK_POSITION = 3
"""Of its arguments, as in `scaled_dot_product_attention(query, key, value, mask)`."""
CAUSAL_MAKERS = frozenset({"generate_square_subsequent_mask"})
"""They return 0 where a position is seen and -inf where it is not (torch.nn.Transformer)."""
UNCHANGING = frozenset(
    {"view", "reshape", "unsqueeze", "expand", "contiguous", "clone", "detach", "cuda"}
)
"""Methods that keep which positions are seen, of a mask of any kind."""
MINUS_INFINITY = re.compile(r"-(\w+\.)?inf\b")
LOOSE_TARGETS = (ast.For, ast.comprehension, ast.NamedExpr)
"""They give a name what nobody looks into."""
DEEPEST = 8
"""Of names that stand for names."""

Meaning = Literal["seen", "hidden", "added"]
"""Of a causal mask: true where a position is seen, true where it is hidden, or what is added to
the scores (-inf where it is hidden)."""


@dataclass(frozen=True)
class _Triangle:
    """What an expression is: a triangle of ones (or of -inf), or a mask made of it."""

    meaning: Meaning
    is_bool: bool
    line: int


def causal_mask_line(path: Path, notes: Sequence[str]) -> str | None:
    """Return the line that makes the causal mask, such as "model.py:12"; None: it is not known.

    Every mask that the trace noted has to be one that the file makes as `torch.tril` of ones, or
    alike: a mask from a batch, or from another file, may be any other.

    Args:
        path: the model's file.
        notes: those of the trace, which name the lines that give attention a mask.
    """
    calls = [call for note in notes if (call := MASKED_CALL.match(note))]
    places = [call["where"] for call in calls]
    lines = [LINE_OF_FILE.match(place) for place in places]
    if not lines or not all(one and Path(one["file"]).name == path.name for one in lines):
        return None
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    found: list[_Triangle | None] = []
    for one in lines:
        masks = list(_masks_at(tree, int(one["line"]))) if one else []
        found += [_resolved(tree, mask) for mask in masks] or [None]
    causal = [one for one in found if one is not None and _is_for_attention(one)]
    return f"{path.name}:{causal[0].line}" if causal and len(causal) == len(found) else None


def _is_for_attention(mask: _Triangle) -> bool:
    """Return whether attention takes it as causal: false hides a position, -inf added as well."""
    return mask.is_bool if mask.meaning == "seen" else mask.meaning == "added"


def _masks_at(tree: ast.AST, line: int) -> Iterator[ast.expr]:
    """Yield the masks of the calls of attention that a line is part of."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.lineno <= line <= (node.end_lineno or 0):
            continue
        named = next((one.value for one in node.keywords if one.arg == "attn_mask"), None)
        if named is not None:
            yield named
        elif _name(node.func) == ATTENTION and len(node.args) > MASK_POSITION:
            yield node.args[MASK_POSITION]


def _resolved(tree: ast.AST, mask: ast.expr, depth: int = 0) -> _Triangle | None:
    """Return the triangle that an expression is made from; None where that is not clear."""
    if depth > DEEPEST:
        return None
    if isinstance(mask, ast.Subscript):
        inner = _resolved(tree, mask.value, depth)
        return inner if _keeps_the_corner(mask.slice) else None
    if isinstance(mask, ast.UnaryOp) and isinstance(mask.op, ast.Invert):
        return _turned(_resolved(tree, mask.operand, depth))
    if isinstance(mask, ast.Compare):
        return _compared(tree, mask, depth)
    if isinstance(mask, ast.Call):
        return _called(tree, mask, depth)
    if isinstance(mask, ast.Name | ast.Attribute):
        made = list(_definitions(tree, mask))
        found = [_resolved(tree, one, depth + 1) for one in made]
        if not found or any(one is None for one in found):
            return None
        kinds = {(one.meaning, one.is_bool) for one in found if one}
        return found[0] if len(kinds) == 1 else None
    return None


def _definitions(tree: ast.AST, name: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
    """Yield everything that the file gives a name; an argument of a function is not known."""
    wanted = _name(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(_is(one, name) for one in node.targets):
            yield node.value
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and _is(node.target, name):
            yield node.value or ast.Constant(None)
        elif isinstance(node, ast.Call) and _name(node.func) == "register_buffer":
            first, *others = node.args or [ast.Constant(None)]
            is_it = isinstance(first, ast.Constant) and first.value == wanted
            if is_it and isinstance(name, ast.Attribute):
                tensors = [one.value for one in node.keywords if one.arg == "tensor"]
                yield (*others, *tensors, ast.Constant(None))[0]
        elif _is_given(node, name):
            yield ast.Constant(None)


def _is_given(node: ast.AST, name: ast.Name | ast.Attribute) -> bool:
    """Return whether a name is an argument of a function here, or takes what nobody looks into."""
    if isinstance(node, ast.arg):
        return isinstance(name, ast.Name) and node.arg == name.id
    return isinstance(node, LOOSE_TARGETS) and _is(node.target, name)


def _is(target: ast.expr, name: ast.Name | ast.Attribute) -> bool:
    """Return whether a target may be this name; one of several, too."""
    if isinstance(target, ast.Tuple | ast.List):
        return any(_is(one, name) for one in target.elts)
    return isinstance(target, type(name)) and _name(target) == _name(name)


def _called(tree: ast.AST, call: ast.Call, depth: int) -> _Triangle | None:
    name = _name(call.func)
    if name in CAUSAL_MAKERS:
        return _Triangle("added", is_bool=False, line=call.lineno)
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_method = of is not None and _name(of) != "torch"
    if name in ("tril", "triu"):
        return _triangle(call, of if is_method else None)
    if not is_method or of is None:
        return _turned(_resolved(tree, call.args[0], depth)) if name == "logical_not" else None
    inner = _resolved(tree, of, depth)
    if inner is None or name in UNCHANGING:
        return inner
    if name == "logical_not":
        return _turned(inner)
    if name in ("bool", "to", "type"):
        is_bool = name == "bool" or any(_name(one) == "bool" for one in _values(call))
        return _as_bool(inner) if is_bool else inner
    return None


def _triangle(call: ast.Call, of: ast.expr | None) -> _Triangle | None:
    """Return what tril or triu makes of ones (or of -inf) with the diagonal of causal attention."""
    args = list(call.args)
    source = args.pop(0) if of is None and args else of
    given = next((one.value for one in call.keywords if one.arg == "diagonal"), None)
    shift = given or (args[0] if args else ast.Constant(0))
    lower = _name(call.func) == "tril"
    if not (isinstance(shift, ast.Constant) and shift.value == (0 if lower else 1)):
        return None
    if not isinstance(source, ast.Call):
        return None
    if _name(source.func) in ("ones", "ones_like"):
        is_bool = any(_name(one) == "bool" for one in _values(source))
        return _Triangle("seen" if lower else "hidden", is_bool=is_bool, line=call.lineno)
    is_infinite = any(MINUS_INFINITY.search(ast.unparse(one)) for one in _values(source))
    if not lower and _name(source.func) in ("full", "full_like") and is_infinite:
        return _Triangle("added", is_bool=False, line=call.lineno)
    return None


def _compared(tree: ast.AST, mask: ast.Compare, depth: int) -> _Triangle | None:
    """Return a triangle of ones that is compared with 0 or 1."""
    inner, (operator, *more) = _resolved(tree, mask.left, depth), mask.ops
    other = mask.comparators[0]
    if inner is None or inner.meaning == "added" or more or not isinstance(other, ast.Constant):
        return None
    is_one = {
        (ast.Eq, 1): True, (ast.NotEq, 0): True, (ast.Gt, 0): True,
        (ast.Eq, 0): False, (ast.NotEq, 1): False,
    }.get((type(operator), other.value))  # fmt: skip
    if is_one is None:
        return None
    return _as_bool(inner) if is_one else _turned(_as_bool(inner))


def _turned(mask: _Triangle | None) -> _Triangle | None:
    if mask is None or mask.meaning == "added":
        return None
    meaning: Meaning = "hidden" if mask.meaning == "seen" else "seen"
    return _Triangle(meaning, is_bool=mask.is_bool, line=mask.line)


def _as_bool(mask: _Triangle) -> _Triangle | None:
    if mask.meaning == "added":
        return None
    return _Triangle(mask.meaning, is_bool=True, line=mask.line)


def _keeps_the_corner(index: ast.expr) -> bool:
    """Return whether an index such as [:, :, :t, :t] or [None] starts at the first position."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return all(
        (isinstance(one, ast.Slice) and one.lower is None and one.step is None)
        or (isinstance(one, ast.Constant) and one.value in (None, ...))
        for one in parts
    )


def _values(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(one.value for one in call.keywords)]


def _name(node: ast.expr) -> str | None:
    """Return the last part of a name: "tril" of torch.tril."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None
