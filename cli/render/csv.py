"""Plans as CSV: one row a plan, one column for every value of the JSON, named by its path in it."""

from __future__ import annotations

import csv
import io
import json
import types
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

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


def _paths(part: type, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every plain value of a plan's part, whether or not a plan has it."""
    for name, annotation in _fields(part):
        inner = _part_in(annotation)
        if inner is None:
            yield (*prefix, name)
        else:
            yield from _paths(inner, (*prefix, name))


def _fields(part: type) -> Iterator[tuple[str, Any]]:
    """Yield name and annotation of every field of a pydantic model or a dataclass."""
    if issubclass(part, BaseModel):
        yield from ((name, field.annotation) for name, field in part.model_fields.items())
    else:
        yield from get_type_hints(part).items()


def _part_in(annotation: Any) -> type | None:
    """Return the class of fields that an annotation names, also when None is allowed beside it."""
    if get_origin(annotation) in (Union, types.UnionType):
        inner = (_part_in(part) for part in get_args(annotation))
        return next((part for part in inner if part is not None), None)
    if isinstance(annotation, type) and (
        issubclass(annotation, BaseModel) or is_dataclass(annotation)
    ):
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
