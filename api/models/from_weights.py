"""Whether a training starts from weights that somebody has trained: a fine-tune, if it is short."""

from __future__ import annotations

import ast
from dataclasses import replace

from ...catalog.errors import GpuplanError
from ...planner.plan.question import Question
from ...profiles.user_model.file_text import parse, read_source
from ...profiles.user_model.spec import ModelSpec

WEIGHTS = "pretrained_weights"
"""The function of a model file that says where a run starts."""


def with_start(question: Question, spec: ModelSpec | None) -> Question:
    """Return the question, saying whether weights exist that this model may start from.

    Args:
        question: as it was asked.
        spec: the model; None where its Profile came from elsewhere.
    """
    if question.work.from_weights or spec is None or not has_weights(spec):
        return question
    return replace(question, work=replace(question.work, from_weights=True))


def has_weights(spec: ModelSpec) -> bool:
    """Return whether a model has published weights: a Hugging Face config, or a file with some."""
    if spec.kind == "hf":
        return True
    if spec.kind != "file":
        return False
    try:
        tree = parse(read_source(spec.path), spec.path)
    except GpuplanError:
        return False  # Whoever traces it says what is wrong with it.
    functions = (one for one in tree.body if isinstance(one, ast.FunctionDef))
    return any(one.name == WEIGHTS for one in functions)
