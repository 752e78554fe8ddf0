"""Plans as CSV: one row a plan, one column for every value of the JSON, named by its path in it."""

from __future__ import annotations

import csv
import io
import json
import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from ...planner.plan.plan import Estimate, Plan


def render_csv(answer: Estimate) -> str:
    """Return the plans as CSV with a heading; an unknown value is an empty cell."""
    paths = list(_paths(Plan))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(".".join(path) for path in paths)
    for plan in answer.plans:
        values = plan.model_dump(mode="json")
        writer.writerow(_cell(_value(values, path)) for path in paths)
    return stream.getvalue()


def _paths(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every plain value of a model, whether or not a plan has it."""
    for name, field in model.model_fields.items():
        inner = _model_in(field.annotation)
        if inner is None:
            yield (*prefix, name)
        else:
            yield from _paths(inner, (*prefix, name))


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that an annotation stands for, also when None is allowed beside it."""
    if get_origin(annotation) in (Union, types.UnionType):
        inner = (_model_in(part) for part in get_args(annotation))
        return next((model for model in inner if model is not None), None)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _value(values: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if values is None:
            return None
        values = values[name]
    return values


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
