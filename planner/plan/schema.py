"""JSON Schemas (draft 2020-12) of what the command line prints with `--format json`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from .plan import SCHEMA_VERSION

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(answer: type[BaseModel], *, title: str) -> dict[str, Any]:
    """Return the schema of one kind of answer, as it is printed: every key present.

    Keys that a later version adds are allowed, because a reader has to ignore them.
    """
    schema = answer.model_json_schema(mode="serialization")
    for part in (schema, *schema.get("$defs", {}).values()):
        if "properties" in part:
            # A key with a default may be left out of an input, never of what we print.
            part["required"] = list(part["properties"])
    return {"$schema": DIALECT, **schema, "title": f"{title}, version {SCHEMA_VERSION}"}
