"""What FSDP reduces gradients in: as it was asked for, else as the file's own policy says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ...planner.plan.question import Question
from ...planner.plan.setup import ReduceDtype
from ...profiles.user_model.file_text import local_files
from ...profiles.user_model.spec import ModelSpec

POLICIES = ("MixedPrecisionPolicy", "MixedPrecision")
"""torch's names of it, for `fully_shard` and for FullyShardedDataParallel."""
_DTYPES: dict[str, ReduceDtype] = {"bfloat16": "bf16", "float32": "fp32"}


@dataclass(frozen=True, kw_only=True)
class SaidPolicy:
    """A policy in the text of a model's files."""

    reduce_dtype: ReduceDtype
    place: str
    """file:line"""


def with_reduce_dtype(
    question: Question, spec: ModelSpec | None
) -> tuple[Question, tuple[str, ...]]:
    """Return the question with what gradients are reduced in, and a note where a file says so.

    Args:
        question: as it was asked.
        spec: the model; None where its Profile came from elsewhere.
    """
    if question.choices.reduce_dtype is not None or spec is None or spec.kind != "file":
        return question, ()
    said = list(said_policies(spec.path))
    if {one.reduce_dtype for one in said} != {"bf16"}:
        return question, ()  # Nothing, fp32 as FSDP is planned with, or one thing here, one there.
    note = (
        f"FSDP reduces gradients in bf16, as the mixed precision at {said[0].place} does;"
        " --reduce-dtype fp32 plans it otherwise"
    )
    return replace(question, choices=replace(question.choices, reduce_dtype="bf16")), (note,)


def said_policies(path: Path) -> Iterator[SaidPolicy]:
    """Yield the policies that a file and those beside it that it imports write out.

    Without a `reduce_dtype` gradients are reduced in `param_dtype` (torch, MixedPrecisionPolicy and
    MixedPrecision). What is a variable is not known, and left out.
    """
    for file in local_files(path):
        try:
            text = file.read_text(encoding="utf-8")
            tree = ast.parse(text) if "MixedPrecision" in text else ast.Module([], [])
        except (OSError, SyntaxError, ValueError):
            continue  # Whoever traces it says what is wrong with it.
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node.func) in POLICIES:
                found = _reduced_in(node)
                if found is not None:
                    yield SaidPolicy(reduce_dtype=found, place=f"{file.name}:{node.lineno}")


def _reduced_in(call: ast.Call) -> ReduceDtype | None:
    given = dict(zip(("param_dtype", "reduce_dtype"), call.args, strict=False))
    given |= {one.arg: one.value for one in call.keywords if one.arg}
    chosen = given.get("reduce_dtype")
    if chosen is None or (isinstance(chosen, ast.Constant) and chosen.value is None):
        chosen = given.get("param_dtype")
    return None if chosen is None else _DTYPES.get(_name(chosen))


def _name(node: ast.expr) -> str:
    """Return the last name of a dotted one: "bfloat16" of torch.bfloat16; "" of all others."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
