"""JSON Schemas (draft 2020-12) of what the command line prints with `--format json`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel

from .plan import SCHEMA_VERSION

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(answer: type[BaseModel], *, title: str) -> dict[str, Any]:
    """Return the schema of one kind of answer, as it is printed: every key present.

    Keys that a later version adds are allowed, because a reader has to ignore them. The text below
    a field in the source is its description.
    """
    schema = answer.model_json_schema(mode="serialization")
    parts = {answer.__name__: schema, **schema.get("$defs", {})}
    # pydantic's use_attribute_docstrings does the same for every import, and takes 0.1 s of it.
    described = {part.__name__: descriptions(part) for part in set(_parts(answer))}
    for name, part in parts.items():
        if "properties" in part:
            # A key with a default may be left out of an input, never of what we print.
            part["required"] = list(part["properties"])
            for key, text in described.get(name, {}).items():
                if key in part["properties"]:
                    part["properties"][key]["description"] = text
    return {"$schema": DIALECT, **schema, "title": f"{title}, version {SCHEMA_VERSION}"}


def descriptions(part: type) -> dict[str, str]:
    """Return the text below each field of a class, in its source, as one line; also inherited."""
    found: dict[str, str] = {}
    for base in reversed(part.__mro__):
        if base is object or base.__module__.startswith("pydantic"):
            continue
        found |= _own_descriptions(base)
    return found


def _own_descriptions(part: type) -> dict[str, str]:
    module = inspect.getmodule(part)
    if module is None:
        return {}
    tree = ast.parse(inspect.getsource(module))
    body = next(
        (n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == part.__name__), []
    )
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _parts(part: type) -> Iterator[type]:
    """Yield a class of fields and, through its annotations, those that its values are made of."""
    yield part
    for annotation in get_type_hints(part).values():
        yield from _parts_in(annotation)


def _parts_in(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and (
        issubclass(annotation, BaseModel) or is_dataclass(annotation)
    ):
        yield from _parts(annotation)
    for inner in get_args(annotation):
        yield from _parts_in(inner)
