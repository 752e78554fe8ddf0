"""Models as flat rows: one column for every plain value, named by its path in the JSON."""

from __future__ import annotations

import importlib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from ...catalog.errors import UsageError

Path = tuple[str, ...]


@cache
def paths(part: type) -> tuple[Path, ...]:
    """Return the path of every plain value of a model, whether or not one of it has the value."""
    return tuple(_paths(part))


def flat(values: Mapping[str, Any], wanted: Iterable[Path]) -> dict[str, Any]:
    """Return the values of a dumped model by path; None where a part on the way is None."""
    return {".".join(path): _value(values, path) for path in wanted}


def frame(found: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Any:
    """Return rows as a pandas DataFrame with these columns, also where there are no rows.

    Raises:
        UsageError: pandas is not installed.
    """
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise UsageError(
            "A DataFrame needs pandas, which is not installed here.",
            fix="pip install pandas, or take rows(), which are plain dicts.",
        ) from error
    return pandas.DataFrame(found, columns=list(columns))


def _paths(part: type, prefix: Path = ()) -> Iterator[Path]:
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


def _value(values: Any, path: Path) -> Any:
    for name in path:
        if values is None:
            return None
        values = values[name]
    return values
