"""How the fields of a project file are written: counts, shares, spans of time, lists."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema
from pydantic_core import CoreSchema

from ....catalog.text.amounts import parse_count, parse_duration_s, parse_share, parse_usd


def written_as(example: str) -> WithJsonSchema:
    """Return the JSON Schema of a number that may be written as text, with an example."""
    return WithJsonSchema({"type": ["number", "string"], "examples": [example]})


def whole(value: object) -> int:
    """Return a whole number that may be written as "64k"."""
    return int(parse_count(value, whole=True))


def listed(value: object) -> object:
    """Return a list as it is, and the text "aws, gcp" as the list that it names."""
    if not isinstance(value, str):
        return value
    return [part.strip() for part in value.split(",") if part.strip()]


class OrText:
    """A list that may be written as text, in the JSON Schema."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        """Return the list's schema or that of text."""
        return {"anyOf": [handler(schema), {"type": "string"}]}


def parsed_share(value: object) -> float:
    """Return "10%" or 0.1 as 0.1; 0 and 1 are allowed."""
    return parse_share(value, least=0)


Count = Annotated[float, BeforeValidator(parse_count), written_as("10B")]


WholeCount = Annotated[int, BeforeValidator(whole), written_as("64")]


Seconds = Annotated[float, BeforeValidator(parse_duration_s), written_as("10d")]
"""A span of time, written with its unit."""


Dollars = Annotated[Decimal, BeforeValidator(parse_usd), written_as("$5,000")]


Share = Annotated[float, BeforeValidator(parsed_share), written_as("10%")]
"""From 0 to 1; "10%" is 0.1."""


Names = Annotated[tuple[str, ...], BeforeValidator(listed), OrText()]


Wholes = Annotated[tuple[WholeCount, ...], BeforeValidator(listed), OrText()]


ModelParams = dict[str, Any]


def _without_null(schema: dict[str, Any]) -> None:
    """Take null out of a model's JSON Schema: what is not given is left out, never written so."""
    for one in schema.get("properties", {}).values():
        kinds = one.get("anyOf", [])
        left = [kind for kind in kinds if kind != {"type": "null"}]
        if len(left) == len(kinds):
            continue
        del one["anyOf"]
        one.update(left[0] if len(left) == 1 else {"anyOf": left})
        if one.get("default", 0) is None:
            del one["default"]


class Written(BaseModel):
    """A part of the file: what it does not know is refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        json_schema_extra=_without_null,
    )
